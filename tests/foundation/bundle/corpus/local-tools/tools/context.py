async def mount(coordinator, config):
    return None
