drop view redrive_outbox_publish;
-- only where: select 1 from sqlite_master where type = 'view' and name = 'search_outbox_events'
drop view search_outbox_events;
drop trigger redrive_outbox_life_first;
drop trigger redrive_outbox_life_of_event;
drop table redrive_outbox_life;
drop table redrive_outbox_tombstone;
