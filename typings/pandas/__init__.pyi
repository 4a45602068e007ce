# pandas infers unions such as Series | DataFrame | ndarray from its code, which no caller can
# narrow, and publishes its types separately. It is therefore not type-checked here.
from typing import Any

def __getattr__(name: str) -> Any: ...
