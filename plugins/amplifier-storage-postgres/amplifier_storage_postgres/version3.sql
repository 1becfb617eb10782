-- What version 3 adds: the words of messages, indexed when somebody searches. The messages of a history are indexed up
-- to `stop`. What is deleted leaves the index with its message.
CREATE TABLE @.message_texts (
    history bigint NOT NULL,
    position bigint NOT NULL,
    lexemes tsvector NOT NULL,
    PRIMARY KEY (history, position),
    FOREIGN KEY (history, position) REFERENCES @.messages (history, position) ON DELETE CASCADE
);
CREATE INDEX message_words ON @.message_texts USING gin (lexemes);
CREATE TABLE @.message_ends (
    history bigint PRIMARY KEY REFERENCES @.histories (id) ON DELETE CASCADE,
    stop bigint NOT NULL
);
