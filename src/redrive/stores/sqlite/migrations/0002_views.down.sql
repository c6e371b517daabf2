drop view redrive_v_failed_counts;
drop view redrive_v_counts;
drop view redrive_v_failures;
drop view redrive_v_tasks;
