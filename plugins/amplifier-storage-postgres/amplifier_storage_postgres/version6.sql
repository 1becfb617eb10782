-- What version 6 adds: a function by which a deletion notices texts that have come since its client read the others.
SELECT 1;
