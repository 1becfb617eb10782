-- What version 2 adds: pages of deliveries and their counts over time read rows of their own alone.
CREATE INDEX deliveries_by_time ON @.deliveries (project, queue, state, created, id);
