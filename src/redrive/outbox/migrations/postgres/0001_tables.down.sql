do $$
begin
  if obj_description(to_regclass('public.search_outbox_events'), 'pg_class') like 'For producers: redrive.%' then
    drop view public.search_outbox_events;
  end if;
end $$;
drop view if exists redrive.search_outbox_events;
drop trigger if exists outbox_life on redrive.task;
drop table redrive.outbox_tombstone, redrive.outbox_life;
drop function if exists redrive.outbox_life_of_event, redrive.publish, redrive.publish_from_view;
