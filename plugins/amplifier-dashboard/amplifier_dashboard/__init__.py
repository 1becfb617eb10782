"""Serve a page to watch and steer background sessions: `amplifier dashboard`.

A request passes `guard` (who may ask), is answered by a view or an act, and a shown page stays live through `live`:

    command, plugin     start the server by hand, or beside `up`
    server, application listen; routes, files, errors
    guard               token, cookie, Host, Origin, CSRF, headers
    desk                what all views share: the store, the plugins, the person, news of changes
    pages               the contracts of views and acts, and their registry
    navigation          the entries of the navigation, with what waits
    live                server-sent events: a view is read again after each change, and what differs is sent
    rendering           templates and filters
    views/              one module for each view, with its acts
"""
