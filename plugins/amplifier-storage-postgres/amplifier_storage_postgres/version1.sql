-- The tables of version 1. Released files are never changed; "@." stands for the schema.
-- Times are microseconds since 1970, UTC. JSON is text: jsonb takes no \u0000.

CREATE TABLE @.sessions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id text COLLATE "C" NOT NULL UNIQUE,
    parent_id text COLLATE "C",
    fork_of text COLLATE "C",
    fork_at bigint,
    name text COLLATE "C" NOT NULL,
    bundle text COLLATE "C" NOT NULL,
    bundle_source text COLLATE "C" NOT NULL,
    bundle_digest text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    event_id text COLLATE "C",
    created bigint NOT NULL,
    updated bigint NOT NULL,
    message_count bigint NOT NULL,
    turn_count bigint NOT NULL,
    error text COLLATE "C",
    config text COLLATE "C" NOT NULL,
    metadata text COLLATE "C" NOT NULL,
    history bigint NOT NULL UNIQUE,
    digest text COLLATE "C"
) WITH (fillfactor = 80);
CREATE INDEX sessions_by_time ON @.sessions (updated, id);
CREATE INDEX sessions_by_project ON @.sessions (project, updated, id);
CREATE INDEX sessions_by_parent ON @.sessions (parent_id, updated, id) WHERE parent_id IS NOT NULL;
CREATE INDEX sessions_woken ON @.sessions (updated, id) WHERE event_id IS NOT NULL;

-- A row names its source and the number of shared messages; `messages` holds its own, numbered from there on.
CREATE TABLE @.histories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source bigint,
    shared bigint NOT NULL,
    digest text COLLATE "C"
);
CREATE INDEX histories_by_source ON @.histories (source, shared) WHERE source IS NOT NULL;

CREATE TABLE @.messages (
    history bigint NOT NULL,
    position bigint NOT NULL,
    body text COLLATE "C" NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (history, position)
);

CREATE TABLE @.cuts (
    session_id text COLLATE "C" NOT NULL,
    history bigint NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    cut bigint NOT NULL
);
CREATE INDEX cuts_by_session ON @.cuts (session_id);
CREATE INDEX cuts_by_history ON @.cuts (history);

-- The one row is the counter of the log. A transaction changes it last, and so the events of two transactions become
-- visible in the order of their sequences: a reader misses none.
CREATE TABLE @.log (last bigint NOT NULL) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 500);
INSERT INTO @.log (last) VALUES (0);

CREATE TABLE @.events (
    sequence bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    data text COLLATE "C" NOT NULL,
    source_session_id text COLLATE "C",
    "timestamp" bigint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    cause text COLLATE "C",
    depth bigint NOT NULL,
    project text COLLATE "C"
);
CREATE INDEX events_by_id ON @.events (left(event_id, 200));
CREATE INDEX events_by_session ON @.events (left(source_session_id, 200), sequence) WHERE source_session_id IS NOT NULL;

CREATE TABLE @.received (
    origin text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (origin, event_id)
);
CREATE INDEX received_by_time ON @.received (at);

-- `waits` is 0 for a delivery that may be claimed, 1 behind an earlier one with its key, 2 for one that was claimed when
-- an earlier one was redelivered. Of the unfinished deliveries with one key, all but the oldest wait.
-- `line`, `settle_key`, `dedupe_key`, `source_event` and `cause` are to find rows by: long texts are shortened.
CREATE TABLE @.deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    delivery_id text COLLATE "C" NOT NULL UNIQUE,
    project text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    trigger text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    attempts bigint NOT NULL,
    epoch bigint NOT NULL,
    session_id text COLLATE "C",
    available_at bigint NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    reason text COLLATE "C",
    key text COLLATE "C",
    priority bigint NOT NULL,
    owners text[] NOT NULL,
    only_on text COLLATE "C",
    lease_until bigint NOT NULL DEFAULT 0,
    waits smallint NOT NULL DEFAULT 0,
    line text COLLATE "C",
    settle_key text COLLATE "C",
    settling_since bigint,
    dedupe_key text COLLATE "C",
    source_event text COLLATE "C",
    cause text COLLATE "C"
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX deliveries_once ON @.deliveries (project, queue, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX deliveries_due ON @.deliveries (project, queue, priority DESC, available_at, id)
    WHERE state IN ('pending', 'claimed') AND waits = 0;
CREATE INDEX deliveries_claimed ON @.deliveries (project, queue, lease_until) WHERE state = 'claimed';
CREATE INDEX deliveries_in_line ON @.deliveries (project, queue, line, id)
    WHERE line IS NOT NULL AND state IN ('pending', 'claimed');
CREATE INDEX deliveries_settling ON @.deliveries (project, queue, settle_key) WHERE settle_key IS NOT NULL;
CREATE INDEX deliveries_finished ON @.deliveries (state, updated) WHERE state NOT IN ('pending', 'claimed');
CREATE INDEX deliveries_by_event ON @.deliveries (source_event);
CREATE INDEX deliveries_by_session ON @.deliveries (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX deliveries_by_cause ON @.deliveries (cause) WHERE cause IS NOT NULL;
CREATE INDEX deliveries_of_host ON @.deliveries (only_on) WHERE only_on IS NOT NULL;

-- The claims that count for `Bounds.begun`.
CREATE TABLE @.begun (project text COLLATE "C" NOT NULL, queue text COLLATE "C" NOT NULL, at bigint NOT NULL);
CREATE INDEX begun_by_queue ON @.begun (project, queue, at);

-- The places of a rate, in microseconds, the last ones.
CREATE TABLE @.rates (
    project text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    places bigint[] NOT NULL,
    PRIMARY KEY (project, name)
);

-- `digest` stands for the key, which may be too long for an index.
CREATE TABLE @.trigger_states (
    project text COLLATE "C" NOT NULL,
    trigger text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, trigger, digest)
);

-- A key is the UTF-8 of its text: keys sort by their code points.
CREATE TABLE @.documents (
    project text COLLATE "C" NOT NULL,
    collection text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    data text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    updated bigint NOT NULL,
    digest bigint NOT NULL,
    PRIMARY KEY (project, collection, key)
);

-- The texts that a search looks in. `lexemes` has the words, and one that stands for project and collection.
CREATE TABLE @.document_texts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project text COLLATE "C" NOT NULL,
    collection text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    members text COLLATE "C" NOT NULL,
    words text COLLATE "C" NOT NULL,
    lexemes tsvector NOT NULL,
    UNIQUE (project, collection, key)
);
CREATE INDEX document_words ON @.document_texts USING gin (lexemes);

CREATE TABLE @.leases (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    until bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE @.processes (
    process text COLLATE "C" PRIMARY KEY,
    host text COLLATE "C" NOT NULL,
    started bigint NOT NULL,
    seen bigint NOT NULL,
    facts text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- The last write of each connection of a client, with its result: a client whose answer was lost asks again.
CREATE TABLE @.operations (
    slot text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    result jsonb,
    at bigint NOT NULL
) WITH (fillfactor = 30);
