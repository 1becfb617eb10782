-- The functions of the store: each write is one call of `perform`, a transaction by itself, so that no client holds a
-- lock between two answers. "@." stands for the schema.
--
-- The order of locks: operation, lease, trigger, queue, delivery, session, documents, and last the log's counter.
-- Errors: AM000 late, AM001 stale epoch, AM002 conflict of sessions, AM003 session exists, AM004 no session,
-- AM005 fork point, AM006 conflict of documents, AM007 no delivery, AM008 conflict of deliveries, AM009 damaged.

CREATE OR REPLACE FUNCTION @.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE OR REPLACE FUNCTION @.fail(code text, facts jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'amplifier: refused' USING ERRCODE = code, DETAIL = facts::text;
END $$;

CREATE OR REPLACE FUNCTION @.lock_name(kind text, VARIADIC names text[]) RETURNS void LANGUAGE sql AS
$$ SELECT pg_advisory_xact_lock(hashtextextended(array_to_string('@.' || kind || names, chr(1)), 0)) $$;


-- Sessions and their histories.

CREATE OR REPLACE FUNCTION @.digest_of(one @.sessions) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    one.digest := NULL;
    RETURN encode(sha256(convert_to(one::text, 'UTF8')), 'hex');
END $$;

CREATE OR REPLACE FUNCTION @.link_digest(history bigint, source bigint, shared bigint) RETURNS text LANGUAGE sql AS
$$ SELECT encode(sha256(convert_to(concat_ws(' ', history, coalesce(source::text, '-'), shared), 'UTF8')), 'hex') $$;

CREATE OR REPLACE FUNCTION @.seal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.digest IS DISTINCT FROM @.digest_of(OLD) THEN
        PERFORM @.fail('AM009', jsonb_build_object('session', OLD.session_id));
    END IF;
    NEW.digest := @.digest_of(NEW);
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION @.locked_session(wanted text) RETURNS @.sessions LANGUAGE plpgsql AS $$
DECLARE one @.sessions;
BEGIN
    SELECT * INTO one FROM @.sessions WHERE session_id = wanted FOR UPDATE;
    IF NOT FOUND THEN PERFORM @.fail('AM004', jsonb_build_object('session', wanted)); END IF;
    RETURN one;
END $$;

CREATE OR REPLACE FUNCTION @.begin_history(its_source bigint, its_shared bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE made bigint := nextval('@.histories_id_seq');
BEGIN
    INSERT INTO @.histories (id, source, shared, digest) OVERRIDING SYSTEM VALUE
    VALUES (made, its_source, its_shared, @.link_digest(made, its_source, its_shared));
    RETURN made;
END $$;

CREATE OR REPLACE FUNCTION @.descends(session text, above text) RETURNS boolean LANGUAGE sql STABLE AS $$
    WITH RECURSIVE chain (id) AS (
        SELECT above COLLATE "C" UNION SELECT s.parent_id FROM @.sessions s JOIN chain ON s.session_id = chain.id
    )
    SELECT EXISTS (SELECT 1 FROM chain WHERE id = session)
        AND NOT EXISTS (SELECT 1 FROM @.sessions s WHERE s.session_id = session)
$$;

CREATE OR REPLACE FUNCTION @.create_session(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    one @.sessions := jsonb_populate_record(NULL::@.sessions, a -> 'row');
    source @.sessions;
BEGIN
    IF one.fork_of IS NOT NULL THEN
        SELECT * INTO source FROM @.sessions WHERE session_id = one.fork_of FOR SHARE;
        IF NOT FOUND THEN PERFORM @.fail('AM004', jsonb_build_object('session', one.fork_of)); END IF;
        one.fork_at := coalesce(one.fork_at, source.message_count);
        IF one.fork_at < 0 OR one.fork_at > source.message_count THEN
            PERFORM @.fail('AM005', jsonb_build_object('at', one.fork_at, 'count', source.message_count));
        END IF;
    END IF;
    IF one.parent_id = one.session_id OR EXISTS (SELECT 1 FROM @.sessions s WHERE s.parent_id = one.session_id) THEN
        IF @.descends(one.session_id, one.parent_id) THEN
            PERFORM @.fail('AM002', jsonb_build_object('session', one.session_id, 'parent', one.parent_id));
        END IF;
    END IF;
    one.message_count := CASE WHEN one.fork_of IS NULL THEN 0 ELSE one.fork_at END;
    INSERT INTO @.sessions (session_id, parent_id, fork_of, fork_at, name, bundle, bundle_source, bundle_digest,
        project, status, event_id, created, updated, message_count, turn_count, error, config, metadata, history)
    VALUES (one.session_id, one.parent_id, one.fork_of, one.fork_at, one.name, one.bundle, one.bundle_source,
        one.bundle_digest, one.project, one.status, one.event_id, one.created, one.updated, one.message_count,
        one.turn_count, one.error, one.config, one.metadata, @.begin_history(source.history, one.message_count))
    ON CONFLICT (session_id) DO NOTHING;
    IF NOT FOUND THEN PERFORM @.fail('AM003', jsonb_build_object('session', one.session_id)); END IF;
    RETURN jsonb_build_object('fork_at', one.fork_at, 'count', one.message_count);
END $$;

CREATE OR REPLACE FUNCTION @.append_messages(a jsonb, bodies text[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    one @.sessions := @.locked_session(a ->> 'session_id');
    at bigint := (a ->> 'at')::bigint;
BEGIN
    IF one.message_count <> at THEN
        PERFORM @.fail('AM002', jsonb_build_object('session', one.session_id, 'count', one.message_count, 'at', at));
    END IF;
    IF cardinality(bodies) > 0 THEN
        INSERT INTO @.messages (history, position, body, digest)
        SELECT one.history, at + n - 1, body, digest::bigint
        FROM unnest(bodies, ARRAY(SELECT jsonb_array_elements_text(a -> 'digests'))) WITH ORDINALITY AS m (body, digest, n);
        UPDATE @.sessions SET message_count = at + cardinality(bodies), updated = @.clock() WHERE id = one.id;
    END IF;
    RETURN to_jsonb(at + cardinality(bodies));
END $$;

CREATE OR REPLACE FUNCTION @.update_session(wanted text, changes jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE one @.sessions := @.locked_session(wanted);
BEGIN
    one := jsonb_populate_record(one, changes);
    UPDATE @.sessions SET name = one.name, bundle = one.bundle, bundle_source = one.bundle_source,
        bundle_digest = one.bundle_digest, project = one.project, status = one.status, event_id = one.event_id,
        created = one.created, updated = @.clock(), turn_count = one.turn_count, error = one.error,
        config = one.config, metadata = one.metadata
    WHERE id = one.id;
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION @.release_history(following bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE link @.histories; needed bigint;
BEGIN
    LOOP
        EXIT WHEN following IS NULL OR EXISTS (SELECT 1 FROM @.sessions s WHERE s.history = following)
            OR EXISTS (SELECT 1 FROM @.cuts c WHERE c.history = following);
        SELECT * INTO link FROM @.histories h WHERE h.id = following;
        EXIT WHEN NOT FOUND OR link.digest IS DISTINCT FROM @.link_digest(link.id, link.source, link.shared);
        SELECT max(h.shared) INTO needed FROM @.histories h WHERE h.source = following;
        DELETE FROM @.messages m WHERE m.history = following AND m.position >= coalesce(needed, 0);
        IF needed IS NULL THEN
            DELETE FROM @.histories h WHERE h.id = following;
        ELSIF needed < link.shared THEN
            UPDATE @.histories h SET shared = needed, digest = @.link_digest(h.id, h.source, needed)
            WHERE h.id = following;
        END IF;
        following := link.source;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION @.delete_session(wanted text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE one @.sessions;
BEGIN
    PERFORM @.lock_name('sessions', 'delete');  -- of two deletions side by side each would leave shared messages to the other
    one := @.locked_session(wanted);
    DELETE FROM @.cuts WHERE session_id = wanted;
    DELETE FROM @.sessions WHERE id = one.id;
    IF one.digest = @.digest_of(one) THEN  -- a damaged row may name another history
        PERFORM @.release_history(one.history);
    END IF;
    RETURN 'true';
END $$;

-- Whether an event or a finished delivery of a session is there that the client has not read. Events get their numbers
-- in the order in which they are stored. Programs of version 4 and before do not ask.
CREATE OR REPLACE FUNCTION @.has_unread_texts(a jsonb) RETURNS boolean LANGUAGE sql AS $$
    SELECT a ? 'last_event' AND (EXISTS (
        SELECT 1 FROM @.events e WHERE left(e.source_session_id, 200) = left(a ->> 'session_id', 200)
            AND e.source_session_id = a ->> 'session_id' AND e.sequence > (a ->> 'last_event')::bigint
    ) OR EXISTS (
        SELECT 1 FROM @.deliveries d WHERE d.session_id = a ->> 'session_id' AND d.state IN ('done', 'refused', 'skipped')
            AND d.id NOT IN (SELECT (x ->> 0)::bigint FROM jsonb_array_elements(a -> 'deliveries') x)
    ))
$$;

-- The client has read the rows, and gives their new texts, null for damaged ones, which stay. Each is found by its
-- number, however long the log is.
CREATE OR REPLACE FUNCTION @.forget_texts(a jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE its_number bigint; new_text text;
BEGIN
    FOR its_number, new_text IN SELECT (x ->> 0)::bigint, x ->> 1 FROM jsonb_array_elements(a -> 'deliveries') x
        WHERE x ->> 1 IS NOT NULL ORDER BY 1
    LOOP
        UPDATE @.deliveries d SET event = new_text WHERE d.id = its_number AND d.session_id = a ->> 'session_id'
            AND d.state IN ('done', 'refused', 'skipped');
    END LOOP;
    FOR its_number, new_text IN SELECT (x ->> 0)::bigint, x ->> 1 FROM jsonb_array_elements(a -> 'events') x
        WHERE x ->> 1 IS NOT NULL
    LOOP
        UPDATE @.events e SET data = new_text WHERE e.sequence = its_number;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION @.repair_session(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    one @.sessions := @.locked_session(a ->> 'session_id');
    cut bigint := (a ->> 'cut_at')::bigint;
BEGIN
    IF one.history <> (a ->> 'history')::bigint OR one.message_count <> (a ->> 'count')::bigint THEN
        PERFORM @.fail('AM002', jsonb_build_object('session', one.session_id, 'count', one.message_count, 'at', a -> 'count'));
    END IF;
    IF cut IS NOT NULL THEN
        INSERT INTO @.cuts (session_id, history, start, stop, cut)
        VALUES (one.session_id, one.history, cut, one.message_count, @.clock());
        one.history := @.begin_history(one.history, cut);
        one.message_count := cut;
        one.fork_at := least(one.fork_at, cut);
    END IF;
    IF (a ->> 'no_parent')::boolean THEN one.parent_id := NULL; END IF;
    IF (a ->> 'no_source')::boolean THEN one.fork_of := NULL; one.fork_at := NULL; END IF;
    UPDATE @.sessions SET history = one.history, message_count = one.message_count, fork_of = one.fork_of,
        fork_at = one.fork_at, parent_id = one.parent_id, updated = @.clock()
    WHERE id = one.id;
    RETURN 'true';
END $$;

-- The first row has the end of what is returned as its body; the messages follow, as many as there are.
CREATE OR REPLACE FUNCTION @.read_messages(wanted text, first bigint, final bigint)
RETURNS TABLE ("position" bigint, body text, digest bigint) LANGUAGE plpgsql STABLE AS $$
DECLARE
    one @.sessions;
    link @.histories;
    following bigint;
    stop bigint;
    histories bigint[] := '{}';
    starts bigint[] := '{}';
    stops bigint[] := '{}';
BEGIN
    SELECT * INTO one FROM @.sessions s WHERE s.session_id = wanted;
    IF NOT FOUND THEN PERFORM @.fail('AM004', jsonb_build_object('session', wanted)); END IF;
    IF one.digest IS DISTINCT FROM @.digest_of(one) THEN
        PERFORM @.fail('AM009', jsonb_build_object('session', wanted));
    END IF;
    first := greatest(first, 0);
    stop := least(coalesce(final, one.message_count), one.message_count);
    RETURN QUERY SELECT one.history, stop::text, one.message_count;
    following := one.history;
    WHILE stop > first LOOP
        SELECT * INTO link FROM @.histories h WHERE h.id = following;
        IF NOT FOUND OR link.digest IS DISTINCT FROM @.link_digest(link.id, link.source, link.shared) THEN
            link.source := NULL;
            link.shared := 0;
        END IF;
        histories := following || histories;
        starts := greatest(first, link.shared) || starts;
        stops := stop || stops;
        following := link.source;
        stop := least(stop, link.shared);
    END LOOP;
    FOR n IN 1 .. cardinality(histories) LOOP
        RETURN QUERY SELECT m.position, m.body, m.digest FROM @.messages m
            WHERE m.history = histories[n] AND m.position >= starts[n] AND m.position < stops[n] ORDER BY m.position;
    END LOOP;
END $$;


-- The log. Its counter is the last lock of a transaction: it is held for the commit alone.

CREATE OR REPLACE FUNCTION @.log_events(events jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE many bigint := coalesce(jsonb_array_length(events), 0); newest bigint;
BEGIN
    IF many = 0 THEN RETURN '[]'; END IF;
    UPDATE @.log SET last = last + many RETURNING last INTO newest;
    INSERT INTO @.events (sequence, name, data, source_session_id, "timestamp", event_id, cause, depth, project)
    SELECT newest - many + n, e.name, e.data, e.source_session_id, e."timestamp", e.event_id, e.cause, e.depth, e.project
    FROM jsonb_array_elements(events) WITH ORDINALITY AS each (row, n),
        LATERAL jsonb_populate_record(NULL::@.events, each.row) AS e;
    RETURN CASE many WHEN 1 THEN jsonb_build_array(newest)
        ELSE (SELECT jsonb_agg(newest - many + n ORDER BY n) FROM generate_series(1, many) n) END;
END $$;

CREATE OR REPLACE FUNCTION @.receive_event(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @.received (origin, event_id, at) VALUES (a ->> 'origin', a ->> 'id', @.clock()) ON CONFLICT DO NOTHING;
    RETURN CASE WHEN FOUND THEN @.log_events(a -> 'events') END;
END $$;


-- Documents.

CREATE OR REPLACE FUNCTION @.change_documents(changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record; doc bytea;
BEGIN
    IF jsonb_array_length(changes) > 1 THEN  -- in one order, so that two writers do not wait for each other
        PERFORM 1 FROM @.documents d JOIN (
            SELECT x ->> 'project' AS project, x ->> 'collection' AS collection, decode(x ->> 'key', 'hex') AS key
            FROM jsonb_array_elements(changes) x
        ) w USING (project, collection, key) ORDER BY d.project, d.collection, d.key FOR UPDATE OF d;
    END IF;
    FOR c IN SELECT * FROM jsonb_to_recordset(changes) AS x (
        project text, collection text, key text, data text, version bigint, digest bigint, members text, words text,
        place text, said jsonb)
    LOOP
        doc := decode(c.key, 'hex');
        IF c.data IS NULL THEN
            DELETE FROM @.documents d
            WHERE d.project = c.project AND d.collection = c.collection AND d.key = doc AND d.version = c.version;
        ELSIF c.version = 0 THEN
            INSERT INTO @.documents (project, collection, key, data, version, updated, digest)
            VALUES (c.project, c.collection, doc, c.data, 1, @.clock(), c.digest) ON CONFLICT DO NOTHING;
        ELSE
            UPDATE @.documents d SET data = c.data, version = c.version + 1, updated = @.clock(), digest = c.digest
            WHERE d.project = c.project AND d.collection = c.collection AND d.key = doc AND d.version = c.version;
        END IF;
        IF NOT FOUND THEN PERFORM @.fail('AM006', c.said); END IF;
        IF c.version > 0 THEN
            DELETE FROM @.document_texts t WHERE t.project = c.project AND t.collection = c.collection AND t.key = doc;
        END IF;
        IF c.words IS NOT NULL THEN
            INSERT INTO @.document_texts (project, collection, key, members, words, lexemes)
            VALUES (c.project, c.collection, doc, c.members, c.words, array_to_tsvector(
                array_remove(string_to_array(left(c.words, 250000), ' '), '') || c.place));
        END IF;
    END LOOP;
END $$;


-- Deliveries.
--
--     pending -> claimed -> done | dead        nack: claimed -> pending
--     pending | claimed | dead -> skipped      redeliver: dead | refused | skipped -> pending
--
-- A claim raises `epoch`, so at most one worker holds a delivery. Functions that line up deliveries with keys hold the
-- lock of their queue.

CREATE OR REPLACE FUNCTION @.let_next(its_project text, its_queue text, its_line text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF its_line IS NOT NULL THEN
        UPDATE @.deliveries SET waits = 0 WHERE waits > 0 AND id = (
            SELECT min(d.id) FROM @.deliveries d WHERE d.project = its_project AND d.queue = its_queue
                AND d.line = its_line AND d.state IN ('pending', 'claimed'));
    END IF;
END $$;

CREATE OR REPLACE FUNCTION @.save_state(its_project text, its_trigger text, state jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF state IS NULL OR jsonb_typeof(state) = 'null' THEN RETURN; END IF;
    PERFORM @.lock_name('trigger', its_project, its_trigger);
    IF state ? 'whole' THEN
        DELETE FROM @.trigger_states t WHERE t.project = its_project AND t.trigger = its_trigger;
    END IF;
    DELETE FROM @.trigger_states t USING jsonb_array_elements(state -> 'rows') r
    WHERE t.project = its_project AND t.trigger = its_trigger AND t.digest = r ->> 0 AND r ->> 2 IS NULL;
    INSERT INTO @.trigger_states (project, trigger, digest, key, value)
    SELECT its_project, its_trigger, r ->> 0, r ->> 1, r ->> 2 FROM jsonb_array_elements(state -> 'rows') r
    WHERE r ->> 2 IS NOT NULL
    ON CONFLICT (project, trigger, digest) DO UPDATE SET value = excluded.value;
END $$;

CREATE OR REPLACE FUNCTION @.enqueue(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    one @.deliveries := jsonb_populate_record(NULL::@.deliveries, a -> 'row');
    overlap text := a ->> 'overlap';  -- NULL without an admission
    settled bigint[] := '{}';
    other record;
BEGIN
    IF a ? 'leader' THEN
        PERFORM 1 FROM @.leases WHERE name = a #>> '{leader,0}' AND owner = a #>> '{leader,1}'
            AND epoch = (a #>> '{leader,2}')::bigint AND until > @.clock() FOR SHARE;
        IF NOT FOUND THEN
            PERFORM @.fail('AM001', jsonb_build_object('id', a #> '{leader,0}', 'epoch', a #> '{leader,2}',
                'kind', 'lease'));
        END IF;
    END IF;
    PERFORM @.save_state(one.project, one.trigger, a -> 'state');
    PERFORM @.save_state(one.project, one.trigger, a -> 'state_changes');
    one.created := coalesce(one.created, @.clock());
    one.available_at := one.created;
    one.waits := 0;
    IF overlap IS NOT NULL AND one.state = 'pending' AND (one.line IS NOT NULL OR one.settle_key IS NOT NULL) THEN
        PERFORM @.lock_name('queue', one.project, one.queue);
        IF EXISTS (SELECT 1 FROM @.deliveries d WHERE d.project = one.project AND d.queue = one.queue
            AND d.dedupe_key = one.dedupe_key) THEN
            RETURN '{}';
        END IF;
        IF one.settle_key IS NOT NULL THEN
            SELECT coalesce(array_agg(d.id), '{}'), coalesce(min(d.settling_since), one.created)
            INTO settled, one.settling_since
            FROM @.deliveries d WHERE d.project = one.project AND d.queue = one.queue
                AND d.settle_key = one.settle_key AND d.state = 'pending' AND d.available_at > one.created;
        END IF;
        IF overlap = 'skip' AND EXISTS (SELECT 1 FROM @.deliveries d WHERE d.project = one.project
            AND d.queue = one.queue AND d.line = one.line AND d.state IN ('pending', 'claimed')
            AND d.id <> ALL (settled)) THEN
            one.state := 'skipped';
            one.reason := 'an earlier delivery with the same key is unfinished';
            one.settle_key := NULL;
            one.settling_since := NULL;
        ELSE
            FOR other IN
                UPDATE @.deliveries d SET state = 'skipped', waits = 0, settle_key = NULL, lease_until = 0,
                    reason = 'settled into event ' || (a ->> 'event_id'), updated = one.created
                WHERE d.id = ANY (settled) AND d.state = 'pending' RETURNING d.line
            LOOP
                PERFORM @.let_next(one.project, one.queue, other.line);
            END LOOP;
            IF overlap = 'replace' AND one.line IS NOT NULL THEN
                UPDATE @.deliveries d SET state = 'skipped', waits = 0, settle_key = NULL, lease_until = 0,
                    reason = 'replaced by event ' || (a ->> 'event_id'), updated = one.created
                WHERE d.project = one.project AND d.queue = one.queue AND d.line = one.line
                    AND d.state IN ('pending', 'claimed');
            END IF;
            IF one.settle_key IS NOT NULL THEN
                one.available_at := least(one.created + (a ->> 'settle')::bigint,
                    one.settling_since + (a ->> 'settle_within')::bigint);
            END IF;
            one.waits := (EXISTS (SELECT 1 FROM @.deliveries d WHERE d.project = one.project AND d.queue = one.queue
                AND d.line = one.line AND d.state IN ('pending', 'claimed')))::int;
        END IF;
    END IF;
    INSERT INTO @.deliveries (delivery_id, project, queue, trigger, event, state, attempts, epoch, available_at, created,
        updated, reason, key, priority, owners, only_on, waits, line, settle_key, settling_since, dedupe_key,
        source_event, cause)
    VALUES (one.delivery_id, one.project, one.queue, one.trigger, one.event, one.state, 0, 0, one.available_at,
        one.created, one.created, one.reason, one.key, one.priority, '{}', one.only_on, one.waits, one.line,
        one.settle_key, one.settling_since, one.dedupe_key, one.source_event, one.cause)
    ON CONFLICT (project, queue, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING;
    IF NOT FOUND THEN RETURN '{}'; END IF;
    RETURN jsonb_build_object('state', one.state, 'reason', one.reason, 'available_at', one.available_at,
        'created', one.created);
END $$;

CREATE OR REPLACE FUNCTION @.claim(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    its_project text := a ->> 'project';
    its_queue text := a ->> 'queue';
    right_now bigint;
    most bigint := (a ->> 'running')::bigint;
    begun_most bigint := (a ->> 'begun')::bigint;
    taken bigint;
    its_epoch bigint;
BEGIN
    IF most IS NOT NULL OR begun_most IS NOT NULL THEN PERFORM @.lock_name('queue', its_project, its_queue); END IF;
    right_now := coalesce((a ->> 'now')::bigint, @.clock());
    IF most IS NOT NULL AND (SELECT count(*) FROM @.deliveries d WHERE d.project = its_project AND d.queue = its_queue
        AND d.state = 'claimed' AND d.lease_until > right_now) >= most THEN
        RETURN NULL;
    END IF;
    IF begun_most IS NOT NULL AND (SELECT count(*) FROM @.begun b WHERE b.project = its_project AND b.queue = its_queue
        AND b.at > right_now - (a ->> 'period')::bigint) >= begun_most THEN
        RETURN NULL;
    END IF;
    UPDATE @.deliveries SET state = 'claimed', attempts = attempts + 1, epoch = epoch + 1,
        owners = (owners || (a ->> 'owner'))[greatest(cardinality(owners) - 18, 1):],
        lease_until = right_now + (a ->> 'lease')::bigint, session_id = coalesce(session_id, a ->> 'session_id'),
        settle_key = NULL, updated = right_now
    WHERE id = (
        SELECT d.id FROM @.deliveries d
        WHERE d.project = its_project AND d.queue = its_queue AND d.state IN ('pending', 'claimed') AND d.waits = 0
            AND (d.available_at <= right_now OR d.updated > right_now + 1000000) AND d.lease_until <= right_now
            AND (d.only_on IS NULL OR d.only_on = a ->> 'host')
            AND (d.line IS NULL OR NOT EXISTS (
                SELECT 1 FROM @.deliveries later WHERE later.project = its_project AND later.queue = its_queue
                    AND later.line = d.line AND later.waits = 2 AND later.state = 'claimed' AND later.lease_until > right_now
            ))
        ORDER BY d.priority DESC, d.available_at, d.id LIMIT 1 FOR UPDATE OF d SKIP LOCKED
    )
    RETURNING id, epoch INTO taken, its_epoch;
    IF taken IS NULL THEN RETURN NULL; END IF;
    IF begun_most IS NOT NULL THEN
        DELETE FROM @.begun b WHERE b.project = its_project AND b.queue = its_queue
            AND b.at <= right_now - (a ->> 'period')::bigint;
        INSERT INTO @.begun (project, queue, at) VALUES (its_project, its_queue, right_now);
    END IF;
    RETURN jsonb_build_array(taken, its_epoch);
END $$;

CREATE OR REPLACE FUNCTION @.finish(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF a ->> 'line' IS NOT NULL AND a ->> 'state' <> 'pending' THEN
        PERFORM @.lock_name('queue', a ->> 'project', a ->> 'queue');
    END IF;
    UPDATE @.deliveries SET state = a ->> 'state', reason = a ->> 'reason', lease_until = 0,
        updated = coalesce((a ->> 'now')::bigint, @.clock()),
        available_at = coalesce((a ->> 'available_at')::bigint, available_at),
        attempts = coalesce((a ->> 'attempts')::bigint, attempts)
    WHERE delivery_id = a ->> 'id' AND epoch = (a ->> 'epoch')::bigint AND state = 'claimed';
    IF NOT FOUND THEN PERFORM @.fail('AM001', a); END IF;
    IF a ->> 'state' <> 'pending' THEN PERFORM @.let_next(a ->> 'project', a ->> 'queue', a ->> 'line'); END IF;
    IF a ? 'session' THEN PERFORM @.update_session(a ->> 'session_id', a -> 'session'); END IF;
    IF a ? 'documents' THEN PERFORM @.change_documents(a -> 'documents'); END IF;
    RETURN @.log_events(a -> 'events');
END $$;

CREATE OR REPLACE FUNCTION @.renew(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @.deliveries SET lease_until = coalesce((a ->> 'now')::bigint, @.clock()) + (a ->> 'lease')::bigint
    WHERE delivery_id = a ->> 'id' AND epoch = (a ->> 'epoch')::bigint AND state = 'claimed';
    IF NOT FOUND THEN PERFORM @.fail('AM001', a); END IF;
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION @.release(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE at bigint := @.clock(); many bigint;
BEGIN
    UPDATE @.deliveries SET state = 'pending', lease_until = 0, available_at = least(available_at, at), updated = at
    WHERE project = a ->> 'project' AND state = 'claimed'
        AND (NOT a ? 'owners' OR a -> 'owners' ? owners[cardinality(owners)]);
    GET DIAGNOSTICS many = ROW_COUNT;
    RETURN to_jsonb(many);
END $$;

CREATE OR REPLACE FUNCTION @.standing(wanted text, states text[], what text) RETURNS @.deliveries
LANGUAGE plpgsql AS $$
DECLARE one @.deliveries;
BEGIN
    SELECT * INTO one FROM @.deliveries WHERE delivery_id = wanted;
    IF NOT FOUND THEN PERFORM @.fail('AM007', jsonb_build_object('id', wanted)); END IF;
    IF one.line IS NOT NULL THEN PERFORM @.lock_name('queue', one.project, one.queue); END IF;
    SELECT * INTO one FROM @.deliveries WHERE delivery_id = wanted FOR UPDATE;
    IF NOT FOUND THEN PERFORM @.fail('AM007', jsonb_build_object('id', wanted)); END IF;
    IF one.state <> ALL (states) THEN
        PERFORM @.fail('AM008', jsonb_build_object('id', wanted, 'state', one.state, 'what', what));
    END IF;
    RETURN one;
END $$;

CREATE OR REPLACE FUNCTION @.redeliver(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    one @.deliveries := @.standing(a ->> 'id', '{dead,refused,skipped}', 'delivered again');
    at bigint := coalesce((a ->> 'now')::bigint, @.clock());
    is_behind boolean := false;
BEGIN
    IF one.line IS NOT NULL THEN
        UPDATE @.deliveries d SET waits = CASE d.state WHEN 'claimed' THEN 2 ELSE 1 END
        WHERE d.project = one.project AND d.queue = one.queue AND d.line = one.line
            AND d.state IN ('pending', 'claimed') AND d.id > one.id AND d.waits = 0;
        is_behind := EXISTS (SELECT 1 FROM @.deliveries d WHERE d.project = one.project AND d.queue = one.queue
            AND d.line = one.line AND d.state IN ('pending', 'claimed') AND d.id < one.id);
    END IF;
    UPDATE @.deliveries SET state = 'pending', attempts = 0, reason = NULL, available_at = at, updated = at,
        settle_key = NULL, waits = is_behind::int
    WHERE id = one.id;
    RETURN to_jsonb(one.id);
END $$;

CREATE OR REPLACE FUNCTION @.drop_delivery(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE one @.deliveries := @.standing(a ->> 'id', '{pending,dead}', 'dropped');
BEGIN
    UPDATE @.deliveries SET state = 'skipped', waits = 0, settle_key = NULL, lease_until = 0, reason = a ->> 'reason',
        updated = @.clock()
    WHERE id = one.id;
    PERFORM @.let_next(one.project, one.queue, one.line);
    RETURN to_jsonb(one.id);
END $$;

CREATE OR REPLACE FUNCTION @.make_due(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE at bigint := coalesce((a ->> 'now')::bigint, @.clock());
BEGIN
    UPDATE @.deliveries SET available_at = at, updated = at
    WHERE delivery_id = a ->> 'id' AND state = 'pending' AND available_at > at;
    RETURN to_jsonb(FOUND);
END $$;

CREATE OR REPLACE FUNCTION @.adopt(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE many bigint;
BEGIN
    UPDATE @.deliveries SET only_on = a ->> 'by' WHERE only_on = a ->> 'host' AND state <> 'done';
    GET DIAGNOSTICS many = ROW_COUNT;
    RETURN to_jsonb(many);
END $$;

CREATE OR REPLACE FUNCTION @.reserve(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    most int := (a ->> 'limit')::int;
    taken bigint[];
    at bigint;
    place bigint;
BEGIN
    PERFORM @.lock_name('rate', a ->> 'project', a ->> 'name');
    SELECT places INTO taken FROM @.rates WHERE project = a ->> 'project' AND name = a ->> 'name';
    taken := coalesce(taken, '{}');
    at := @.clock();
    place := greatest(at, taken[cardinality(taken) - most + 1] + (a ->> 'period')::bigint);
    INSERT INTO @.rates (project, name, places) VALUES (a ->> 'project', a ->> 'name', ARRAY[place])
    ON CONFLICT (project, name) DO UPDATE SET places = (taken || place)[greatest(cardinality(taken) + 2 - most, 1):];
    RETURN to_jsonb(place - at);
END $$;

CREATE OR REPLACE FUNCTION @.purge(before bigint, event_bytes bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    old bigint;
    size_left bigint := event_bytes;
    beyond bigint := 0;
    first_kept bigint;
    gone bigint;
    one record;
BEGIN
    DELETE FROM @.deliveries WHERE state IN ('done', 'refused', 'skipped') AND updated < before;
    GET DIAGNOSTICS old = ROW_COUNT;
    FOR one IN SELECT sequence, octet_length(data) AS size FROM @.events ORDER BY sequence DESC LOOP
        size_left := size_left - one.size;
        IF size_left < 0 THEN beyond := one.sequence; EXIT; END IF;
    END LOOP;
    SELECT coalesce(min(sequence), beyond + 1) INTO first_kept
    FROM @.events WHERE sequence <= beyond AND "timestamp" >= before;
    DELETE FROM @.events WHERE sequence < first_kept;
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM @.received r WHERE r.at < least(before, @.clock() - 30 * 86400000000::bigint)
        AND NOT EXISTS (SELECT 1 FROM @.events e WHERE left(e.event_id, 200) = left(r.event_id, 200));
    DELETE FROM @.operations WHERE at < @.clock() - 86400000000;
    DELETE FROM @.begun WHERE at < @.clock() - 30 * 86400000000::bigint;
    RETURN jsonb_build_array(old, gone);
END $$;


-- Leases of names, and processes.

CREATE OR REPLACE FUNCTION @.lead(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE at bigint := @.clock(); one @.leases;
BEGIN
    INSERT INTO @.leases AS l (name, owner, epoch, until)
    VALUES (a ->> 'name', a ->> 'owner', 1, at + (a ->> 'lease')::bigint)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until,
        epoch = l.epoch + (l.owner <> excluded.owner)::int
    WHERE l.owner = excluded.owner OR l.until <= at
    RETURNING * INTO one;
    RETURN CASE WHEN one.name IS NOT NULL THEN jsonb_build_array(one.epoch, one.until) END;
END $$;

CREATE OR REPLACE FUNCTION @.resign(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @.leases SET owner = '', until = 0
    WHERE name = a ->> 'name' AND owner = a ->> 'owner' AND epoch = (a ->> 'epoch')::bigint;
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION @.present(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE at bigint := @.clock();
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);  -- a sign may be lost: the next one comes soon
    INSERT INTO @.processes (process, host, started, seen, facts)
    VALUES (a ->> 'process', a ->> 'host', at, at, a ->> 'facts')
    ON CONFLICT (process) DO UPDATE SET seen = at, facts = excluded.facts;
    RETURN 'true';
END $$;

CREATE OR REPLACE FUNCTION @.absent(a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM @.processes WHERE process = a ->> 'process';
    RETURN 'true';
END $$;


-- The one entrance. A client numbers the writes of each of its slots; a write that comes again, because its answer was
-- lost, gets the result of the first. A write that returns NULL has changed nothing.

CREATE OR REPLACE FUNCTION @.with_rows(work text, result jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF work = 'claim' THEN
        RETURN (SELECT to_jsonb(d) FROM @.deliveries d
            WHERE d.id = (result ->> 0)::bigint AND d.epoch = (result ->> 1)::bigint);
    ELSIF work IN ('redeliver', 'drop') THEN
        RETURN (SELECT to_jsonb(d) FROM @.deliveries d WHERE d.id = result::bigint);
    END IF;
    RETURN result;
END $$;

CREATE OR REPLACE FUNCTION @.perform(its_slot text, its_number bigint, work text, a jsonb, texts text[])
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE known @.operations; outcome jsonb;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(its_slot, 1));
    SELECT * INTO known FROM @.operations WHERE slot = its_slot;
    IF known.number = its_number THEN RETURN @.with_rows(work, known.result); END IF;
    IF known.number > its_number THEN PERFORM @.fail('AM000', '{}'); END IF;
    IF a ? 'fence' THEN
        PERFORM 1 FROM @.deliveries WHERE delivery_id = a #>> '{fence,0}' AND epoch = (a #>> '{fence,1}')::bigint
            AND state = 'claimed' FOR SHARE;
        IF NOT FOUND THEN
            PERFORM @.fail('AM001', jsonb_build_object('id', a #> '{fence,0}', 'epoch', a #> '{fence,1}'));
        END IF;
    END IF;
    CASE work
        WHEN 'append' THEN outcome := @.append_messages(a, texts);
        WHEN 'claim' THEN outcome := @.claim(a);
        WHEN 'finish' THEN outcome := @.finish(a);
        WHEN 'renew' THEN outcome := @.renew(a);
        WHEN 'enqueue' THEN outcome := @.enqueue(a);
        WHEN 'emit' THEN outcome := @.log_events(a -> 'events');
        WHEN 'update' THEN outcome := @.update_session(a ->> 'session_id', a -> 'changes');
        WHEN 'create' THEN outcome := @.create_session(a);
        WHEN 'present' THEN RETURN @.present(a);
        WHEN 'write_documents' THEN
            PERFORM @.change_documents(a -> 'documents');
            outcome := @.log_events(a -> 'events');
        WHEN 'save_state' THEN
            PERFORM @.save_state(a ->> 'project', a ->> 'trigger', a -> 'state');
            outcome := 'true';
        WHEN 'lead' THEN outcome := @.lead(a);
        WHEN 'resign' THEN outcome := @.resign(a);
        WHEN 'absent' THEN outcome := @.absent(a);
        WHEN 'reserve' THEN outcome := @.reserve(a);
        WHEN 'receive' THEN outcome := @.receive_event(a);
        WHEN 'release' THEN outcome := @.release(a);
        WHEN 'redeliver' THEN outcome := @.redeliver(a);
        WHEN 'drop' THEN outcome := @.drop_delivery(a);
        WHEN 'make_due' THEN outcome := @.make_due(a);
        WHEN 'adopt' THEN outcome := @.adopt(a);
        WHEN 'delete' THEN
            IF NOT @.has_unread_texts(a) THEN
                PERFORM @.forget_texts(a);
                outcome := @.delete_session(a ->> 'session_id');
            END IF;
        WHEN 'repair' THEN outcome := @.repair_session(a);
        WHEN 'purge' THEN outcome := @.purge((a ->> 'before')::bigint, (a ->> 'event_bytes')::bigint);
    END CASE;
    IF outcome IS NULL THEN RETURN NULL; END IF;
    UPDATE @.operations SET number = its_number, result = outcome, at = @.clock() WHERE slot = its_slot;
    IF NOT FOUND THEN
        INSERT INTO @.operations (slot, number, result, at) VALUES (its_slot, its_number, outcome, @.clock());
    END IF;
    RETURN @.with_rows(work, outcome);
END $$;

DROP TRIGGER IF EXISTS seal ON @.sessions;
CREATE TRIGGER seal BEFORE INSERT OR UPDATE ON @.sessions FOR EACH ROW EXECUTE FUNCTION @.seal();
