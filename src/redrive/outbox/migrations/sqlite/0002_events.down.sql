drop view if exists search_outbox_events;
