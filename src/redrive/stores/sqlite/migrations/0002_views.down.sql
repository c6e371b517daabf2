drop view redrive_v_series;
drop view redrive_v_audit;
drop view redrive_v_dead_letters;
drop view redrive_v_failed_counts;
drop view redrive_v_counts;
drop view redrive_v_failures;
drop view redrive_v_tasks;
