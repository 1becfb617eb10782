// Keys for everything: `?` shows them.
"use strict";
