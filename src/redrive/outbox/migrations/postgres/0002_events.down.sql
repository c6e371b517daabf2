drop view redrive.search_outbox_events;
drop function redrive.publish(text, text, text, text, bigint, jsonb, text, integer);
