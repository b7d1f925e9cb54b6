"""What a type checker must make of the public interface; checked, never run."""

from typing_extensions import assert_type

import mithril as ml

assert_type(ml.__version__, str)
