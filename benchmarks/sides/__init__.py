"""Sides: libraries in processes of their own, steered over pipes, so that calls of all of them take turns in one run.

    the process that measures                     worker.py, one for each side and form, in that library's environment
        write NAME's arrays as .npy      ->
        {"do": "build", "kind", "name"}  ->       build a call from the arrays, run it once, write its results as .npy
                                         <-       {"build_s", "first_s"}
        {"do": "time", "calls": 7}       ->       one call that is not counted, then 7 timed together
                                         <-       {"seconds"}: of one
        (sleeps while it waits)                   (sleeps until it is asked)

A *side* is a module `by_NAME.py` here, which imports its library, NumPy, and nothing of polyfuse:

    FORMS      ways to use the library, such as "eager" and "compiled"
    PACKAGES   whose versions a figure depends on
    KINDS      what it can compute: for each kind of workload a function from arrays to a call that gives the results
    use(form, threads)    before anything is built

Only by_polyfuse.py imports polyfuse: it is ours, and runs as all others do.
"""
