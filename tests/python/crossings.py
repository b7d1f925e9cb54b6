"""Records the arrays that backends hand over to each other."""


def pointer(array):
    """The address of an array's elements."""
    if hasattr(array, "data_ptr"):
        return array.data_ptr()
    if hasattr(array, "unsafe_buffer_pointer"):
        return array.unsafe_buffer_pointer()
    return array.ctypes.data


def watch(monkeypatch, *backends):
    """A list that gets, for each array that a backend receives, its kind and the addresses before
    and after."""
    crossed = []
    for own in backends:
        receive = own.receive

        def watched(array, own=own, receive=receive):
            received = receive(array)
            crossed.append((own.kind, pointer(array), pointer(received)))
            return received

        monkeypatch.setattr(own, "receive", watched, raising=False)
    return crossed
