drop view redrive.v_series;
drop view redrive.v_failed_counts;
drop view redrive.v_counts;
drop view redrive.v_audit;
drop view redrive.v_dead_letters;
drop view redrive.v_failures;
drop view redrive.v_tasks;
