-- A store of schema 5, written by amplifier-storage-sqlite of that schema and dumped with sqlite3's iterdump.
PRAGMA application_id = 1095585868;
PRAGMA user_version = 5;
BEGIN TRANSACTION;
CREATE TABLE cuts (
        session_id TEXT NOT NULL,
        history INTEGER NOT NULL REFERENCES histories (id),
        start INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        cut INTEGER NOT NULL
    );
INSERT INTO "cuts" VALUES('parent',1,3,4,1767323052000000);
CREATE TABLE deliveries (
        id INTEGER PRIMARY KEY,
        delivery_id TEXT NOT NULL UNIQUE,
        project TEXT NOT NULL,
        lane TEXT NOT NULL,
        trigger TEXT NOT NULL,
        event TEXT NOT NULL,
        dedupe_key TEXT,
        state TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        lease_until INTEGER NOT NULL DEFAULT 0,
        session_id TEXT,
        available_at INTEGER NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        reason TEXT
    , key TEXT, priority INTEGER NOT NULL DEFAULT 0, waits INTEGER NOT NULL DEFAULT 0, settle_key TEXT, settling_since INTEGER, event_id TEXT, cause TEXT);
INSERT INTO "deliveries" VALUES(1,'00000000000000000000000000000001','/projects/app','watch','trigger-file-watcher#0','{"type":"file_change","source":"event-1","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":1,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-1","dedupe_key":"known","state":{"cursor":7},"cause":null,"depth":0}','known','pending',0,0,NULL,0,NULL,1767323045000000,1767323045000000,1767323045000000,NULL,NULL,0,0,NULL,NULL,'event-1',NULL);
INSERT INTO "deliveries" VALUES(2,'00000000000000000000000000000002','/projects/app','watch','trigger-file-watcher#0','{"type":"file_change","source":"event-2","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":2,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-2","dedupe_key":null,"state":null,"cause":null,"depth":0}',NULL,'pending',0,0,NULL,0,NULL,1767323045000000,1767323045000000,1767323045000000,NULL,'a',0,0,NULL,NULL,'event-2',NULL);
INSERT INTO "deliveries" VALUES(3,'00000000000000000000000000000003','/projects/app','watch','trigger-file-watcher#0','{"type":"file_change","source":"event-3","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":3,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-3","dedupe_key":null,"state":null,"cause":"event-1","depth":1}',NULL,'pending',0,0,NULL,0,NULL,1767323045000000,1767323045000000,1767323045000000,NULL,'a',0,1,NULL,NULL,'event-3','event-1');
INSERT INTO "deliveries" VALUES(4,'00000000000000000000000000000004','/projects/app','watch','trigger-file-watcher#0','{"type":"file_change","source":"event-4","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":4,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-4","dedupe_key":null,"state":null,"cause":null,"depth":0}',NULL,'pending',0,0,NULL,0,NULL,1767323045000000,1767323045000000,1767323045000000,NULL,NULL,5,0,NULL,NULL,'event-4',NULL);
INSERT INTO "deliveries" VALUES(5,'00000000000000000000000000000005','/projects/app','watch','trigger-file-watcher#0','{"type":"file_change","source":"event-5","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":5,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-5","dedupe_key":null,"state":null,"cause":null,"depth":0}',NULL,'pending',0,0,NULL,0,NULL,1767323105000000,1767323045000000,1767323045000000,NULL,NULL,0,0,'f',1767323045000000,'event-5',NULL);
INSERT INTO "deliveries" VALUES(6,'00000000000000000000000000000006','/projects/app','watch','trigger-file-watcher#0','{"type":"file_change","source":"event-6","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":6,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-6","dedupe_key":null,"state":null,"cause":null,"depth":0}',NULL,'refused',0,0,NULL,0,NULL,1767323045000000,1767323045000000,1767323045000000,'too deep',NULL,0,0,NULL,NULL,'event-6',NULL);
INSERT INTO "deliveries" VALUES(7,'00000000000000000000000000000007','/projects/app','watch','trigger-file-watcher#0','{"type":"file_change","source":"event-7","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":7,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-7","dedupe_key":null,"state":null,"cause":null,"depth":0}',NULL,'skipped',0,0,NULL,0,NULL,1767323045000000,1767323045000000,1767323045000000,'an earlier one of its key is not over','a',0,0,NULL,NULL,'event-7',NULL);
INSERT INTO "deliveries" VALUES(8,'00000000000000000000000000000008','/projects/app','claimed','trigger-timer#0','{"type":"file_change","source":"event-10","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":10,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-10","dedupe_key":"tick-10","state":{"tick":10},"cause":null,"depth":0}','tick-10','claimed',1,1,'worker',1767323105000000,'woken-10',1767323045000000,1767323045000000,1767323045000000,NULL,NULL,0,0,NULL,NULL,'event-10',NULL);
INSERT INTO "deliveries" VALUES(9,'00000000000000000000000000000009','/projects/app','done','trigger-timer#0','{"type":"file_change","source":"event-11","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":11,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-11","dedupe_key":"tick-11","state":{"tick":11},"cause":null,"depth":0}','tick-11','done',1,1,'worker',0,'woken-11',1767323045000000,1767323045000000,1767323049000000,NULL,NULL,0,0,NULL,NULL,'event-11',NULL);
INSERT INTO "deliveries" VALUES(10,'0000000000000000000000000000000a','/projects/app','dead','trigger-timer#0','{"type":"file_change","source":"event-12","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":12,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-12","dedupe_key":"tick-12","state":{"tick":12},"cause":null,"depth":0}','tick-12','dead',1,1,'worker',0,'woken-12',1767323045000000,1767323045000000,1767323050000000,'gave up',NULL,0,0,NULL,NULL,'event-12',NULL);
INSERT INTO "deliveries" VALUES(11,'0000000000000000000000000000000b','/projects/app','retried','trigger-timer#0','{"type":"file_change","source":"event-13","timestamp":"2026-01-02T03:04:05+00:00","data":{"n":13,"text":"Größe 🎉"},"file_path":null,"change_type":null,"source_session_id":null,"event_name":null,"event_id":"event-13","dedupe_key":"tick-13","state":{"tick":13},"cause":null,"depth":0}','tick-13','pending',1,1,'worker',0,'woken-13',1767323075000000,1767323045000000,1767323051000000,'no network',NULL,0,0,NULL,NULL,'event-13',NULL);
CREATE TABLE events (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        data TEXT NOT NULL,
        source_session_id TEXT,
        timestamp INTEGER NOT NULL,
        event_id TEXT NOT NULL,
        cause TEXT,
        depth INTEGER NOT NULL
    );
INSERT INTO "events" VALUES(1,'work:0','{"n":0}',NULL,1767323045000000,'logged-0',NULL,0);
INSERT INTO "events" VALUES(2,'work:1','{"n":1}','parent',1767323045000000,'logged-1','event-1',1);
INSERT INTO "events" VALUES(3,'work:2','{"n":2}','parent',1767323045000000,'logged-2','event-1',2);
INSERT INTO "events" VALUES(4,'tick:done','{}','woken-11',1767323045000000,'logged-9','event-11',1);
CREATE TABLE histories (
        id INTEGER PRIMARY KEY,
        source INTEGER REFERENCES histories (id),
        shared INTEGER NOT NULL,
        digest INTEGER NOT NULL
    );
INSERT INTO "histories" VALUES(1,NULL,0,2974400093);
INSERT INTO "histories" VALUES(2,1,3,2277175882);
INSERT INTO "histories" VALUES(3,NULL,0,4083988768);
INSERT INTO "histories" VALUES(4,3,2,2088362770);
INSERT INTO "histories" VALUES(5,NULL,0,889434279);
INSERT INTO "histories" VALUES(6,1,3,1916425354);
CREATE TABLE messages (
        history INTEGER NOT NULL REFERENCES histories (id),
        position INTEGER NOT NULL,
        body TEXT NOT NULL,
        digest INTEGER NOT NULL,
        PRIMARY KEY (history, position)
    );
INSERT INTO "messages" VALUES(1,0,'{"role":"user","content":"message 0"}',3243227203);
INSERT INTO "messages" VALUES(1,1,'{"role":"user","content":"message 1"}',2382682589);
INSERT INTO "messages" VALUES(1,2,'{"role":"user","content":"message 2"}',1608088447);
INSERT INTO "messages" VALUES(1,3,'{"role":"user","content":"message 3"}',278010594);
INSERT INTO "messages" VALUES(2,3,'{"role":"assistant","content":"of the fork"}',3862811576);
INSERT INTO "messages" VALUES(3,0,'{"n":0}',2751629666);
INSERT INTO "messages" VALUES(3,1,'{"n":1}',2858593376);
CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL UNIQUE,
        parent_id TEXT,
        fork_of TEXT,
        fork_at INTEGER,
        name TEXT NOT NULL,
        bundle TEXT NOT NULL,
        bundle_source TEXT NOT NULL,
        bundle_digest TEXT NOT NULL,
        project TEXT NOT NULL,
        status TEXT NOT NULL,
        event_id TEXT,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        message_count INTEGER NOT NULL,
        turn_count INTEGER NOT NULL,
        error TEXT,
        config TEXT NOT NULL,
        metadata TEXT NOT NULL,
        history INTEGER NOT NULL UNIQUE REFERENCES histories (id),
        digest INTEGER NOT NULL
    );
INSERT INTO "sessions" VALUES(1,'parent',NULL,NULL,NULL,'Größe','reviewer','bundle.md','sha256:0','/projects/app','completed',NULL,1767323045000000,1767323052000000,3,2,NULL,'{"session":{"n":[1,null,2.5]}}','{"tags":["a"]}',6,1519272438);
INSERT INTO "sessions" VALUES(2,'fork','parent','parent',3,'','','','','/projects/app','running',NULL,1767323045000000,1767323046000000,4,0,NULL,'{}','{}',2,967265352);
INSERT INTO "sessions" VALUES(4,'orphan','gone','source',2,'','','','','/projects/app','running',NULL,1767323045000000,1767323045000000,2,0,NULL,'{}','{}',4,542938458);
INSERT INTO "sessions" VALUES(5,'woken-11','parent',NULL,NULL,'tick','','','','/projects/app','completed','event-11',1767323045000000,1767323048000000,0,1,NULL,'{}','{}',5,67621937);
CREATE TABLE trigger_states (
        project TEXT NOT NULL,
        trigger TEXT NOT NULL,
        state TEXT NOT NULL,
        PRIMARY KEY (project, trigger)
    ) WITHOUT ROWID;
INSERT INTO "trigger_states" VALUES('/projects/app','trigger-file-watcher#0','{"cursor":7}');
INSERT INTO "trigger_states" VALUES('/projects/app','trigger-timer#0','{"tick":13}');
CREATE UNIQUE INDEX deliveries_once ON deliveries (project, lane, dedupe_key)
        WHERE dedupe_key IS NOT NULL;
CREATE INDEX sessions_by_time ON sessions (updated);
CREATE INDEX sessions_by_project ON sessions (project, updated);
CREATE INDEX histories_by_source ON histories (source, shared) WHERE source IS NOT NULL;
CREATE INDEX cuts_by_session ON cuts (session_id);
CREATE INDEX cuts_by_history ON cuts (history);
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX deliveries_by_trigger ON deliveries (project, lane, trigger, state, created) WHERE state NOT IN ('pending', 'claimed');
CREATE INDEX deliveries_due ON deliveries (project, lane, waits, priority DESC, available_at)
        WHERE state IN ('pending', 'claimed');
CREATE INDEX deliveries_by_key ON deliveries (project, lane, key)
        WHERE key IS NOT NULL AND state IN ('pending', 'claimed');
CREATE INDEX deliveries_held ON deliveries (project, lane, key) WHERE waits = 2;
CREATE INDEX deliveries_settling ON deliveries (project, lane, settle_key) WHERE settle_key IS NOT NULL;
CREATE INDEX deliveries_over ON deliveries (state, updated) WHERE state NOT IN ('pending', 'claimed');
CREATE INDEX deliveries_by_event ON deliveries (event_id);
CREATE INDEX deliveries_by_session ON deliveries (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX deliveries_by_cause ON deliveries (cause) WHERE cause IS NOT NULL;
CREATE INDEX events_by_id ON events (event_id);
CREATE INDEX events_by_session ON events (source_session_id) WHERE source_session_id IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',4);
COMMIT;
