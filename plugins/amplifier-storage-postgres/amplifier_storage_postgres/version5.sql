-- What version 5 adds: functions by which a deleted session takes its texts in the log and in deliveries along.
SELECT 1;
