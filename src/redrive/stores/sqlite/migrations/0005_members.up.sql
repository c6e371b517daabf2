-- Members of a join are listed by state, live and finished, and its failures retried in the order in which they came. Only rows with a
-- join are in these indexes: others pay nothing.

create index redrive_task_members on redrive_task (join_id, state, id) where join_id is not null;
drop index redrive_task_of_join;
create index redrive_task_failed_join on redrive_task (join_id, failed_seq) where state = 'failed' and join_id is not null;
create index redrive_history_members on redrive_history (join_id, state, id) where join_id is not null;
