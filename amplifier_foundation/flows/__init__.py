"""Run workflows: tasks of agents and functions, in order, side by side and in loops, that fork each other's sessions.

    plan = Task("plan", agent="planner", prompt="Plan {input.goal}")
    build = Task("build", agent="coder", fork="plan", prompt="Do it.")
    checks = Parallel(Task("test", agent="coder", fork="build", prompt="Test it."),
                      Task("read", agent="critic", fork="plan", prompt="Was the plan good?"))
    workflow = Workflow("feature", Sequence(plan, build, checks))

`tasks.py` has what people write, `graph.py` checks it, `engine.py` runs it, `journal.py` keeps what is done, and
`turns.py` takes the turns of agents. `claims.py` gives a run one owner, `asking.py` asks people, `run_events.py` tells
the triggers of others. `runs.py` and `runner.py` begin runs, by hand and for events. `description.py` makes plain data
of a workflow, for a run to keep; `drawing.py`, `picture.py` and `layout.py` draw that. A run is a session: its messages
are its journal, so a run is forked, listed and deleted like any other session.
"""
