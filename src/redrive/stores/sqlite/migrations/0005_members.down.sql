drop index redrive_history_members;
drop index redrive_task_failed_join;
create index redrive_task_of_join on redrive_task (join_id, id) where join_id is not null;
drop index redrive_task_members;
