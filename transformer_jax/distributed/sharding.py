"""The device mesh, and the rules that map logical axes to mesh axes."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax.linen import spmd
from jax.sharding import NamedSharding, PartitionSpec

from transformer_jax import config as config_lib
from transformer_jax import errors, sequences

# Pairs of a logical axis, as models name the axes of parameters and activations, and the mesh axes
# that shard it.
RULES = (
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
    ("embed", "fsdp"),
    ("rows", ("data", "fsdp")),
)


def mesh_sizes(config: config_lib.MeshConfig, num_devices: int) -> tuple[int, ...]:
    """Returns the number of devices along the mesh axes data, fsdp and tensor.

    A size of -1 in the config stands for all remaining devices.

    Raises:
      UserError: the product of the sizes is not `num_devices`.
    """
    try:
        return np.empty(num_devices).reshape(dataclasses.astuple(config)).shape
    except ValueError as error:
        raise errors.UserError(
            f"mesh.data={config.data}, mesh.fsdp={config.fsdp} and mesh.tensor={config.tensor} do "
            f"not share out {num_devices} devices: their product should be that, or one of them "
            "-1, which stands for the remaining devices"
        ) from error


def make_mesh(
    config: config_lib.MeshConfig, devices: Sequence[Any] | None = None
) -> jax.sharding.Mesh:
    """Returns a mesh with the axes data, fsdp and tensor.

    Args:
      config: the number of devices along each axis.
      devices: the devices; None: all devices.

    Raises:
      UserError: the config's sizes do not suit the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh(
        mesh_sizes(config, len(devices)),
        ("data", "fsdp", "tensor"),
        axis_types=(jax.sharding.AxisType.Auto,) * 3,
        devices=devices,
    )


def replicated(mesh: jax.sharding.Mesh) -> NamedSharding:
    """Returns the sharding of arrays that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: jax.sharding.Mesh) -> NamedSharding:
    """Returns the sharding of a batch, whose rows are divided over the mesh axes data and fsdp."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


@contextlib.contextmanager
def activation_rules(mesh: jax.sharding.Mesh | None) -> Iterator[None]:
    """Makes models that are traced in the body shard their activations by RULES.

    Args:
      mesh: the mesh; if it is None or has one device, nothing is sharded.
    """
    if mesh is None or mesh.size == 1:
        yield
    else:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), nn.logical_axis_rules(RULES):
            yield


def batch_shards(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> int:
    """Returns the number of parts that `batch_sharding` divides a batch into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def parameter_shardings(boxed: Any, mesh: jax.sharding.Mesh) -> Any:
    """Returns the sharding of each array of a tree, such as a model's parameters.

    Args:
      boxed: the shapes of the arrays, in Linen's boxes that name the logical axes.
      mesh: the mesh.

    Raises:
      UserError: an axis cannot be sharded evenly.
    """
    shardings = spmd.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)

    def check(path: Any, array: jax.ShapeDtypeStruct, sharding: NamedSharding) -> None:
        for size, axes in zip(array.shape, sharding.spec, strict=False):
            if axes and size % mesh.shape[axes]:
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                raise errors.UserError(
                    f"mesh.{axes}={mesh.shape[axes]} does not divide the axis of size {size} of "
                    f"parameter {name}: choose a mesh that does, or mesh.{axes}=1"
                )

    jax.tree_util.tree_map_with_path(check, nn.unbox(boxed), shardings)
    return shardings


def rows_of(config: config_lib.Config, mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> int:
    """Returns the number of rows of the global batch, train.batch_tokens // data.target_length.

    Raises:
      UserError: the number of rows is 0, or cannot be divided evenly among devices and accumulation
        steps.
    """
    train, length = config.train, config.data.target_length
    rows = train.batch_tokens // length
    shares = batch_shards(mesh) * train.accumulation_steps
    if not rows or rows % shares:
        raise errors.UserError(
            f"train.batch_tokens={train.batch_tokens} holds {rows} rows of "
            f"data.target_length={length}, which {batch_shards(mesh)} devices × "
            f"{train.accumulation_steps} accumulation steps cannot share out: "
            f"try train.batch_tokens={max(rows - rows % shares, shares) * length}"
        )
    return rows


def rows_here(rows: int, mesh: jax.sharding.Mesh) -> list[int]:
    """Returns the indices of the batch's rows that this process's devices hold, ascending.

    Args:
      rows: the number of rows of the global batch.
      mesh: all devices.
    """
    rows_of_devices = set()
    for index in batch_sharding(mesh).addressable_devices_indices_map((rows,)).values():
        if index:
            row_slice = index[0]
            rows_of_devices.update(range(rows)[row_slice])
    return sorted(rows_of_devices)


def put(
    batch: sequences.Batch, mesh: jax.sharding.Mesh, rows: int | None = None
) -> sequences.Batch:
    """Returns a batch of NumPy arrays as global arrays, with their rows sharded over the devices.

    Args:
      batch: all rows of the global batch if `rows` is None; otherwise only the rows of this
        process, as `rows_here` lists them.
      mesh: all devices.
      rows: the number of rows of the global batch; None if `batch` has all of them.
    """
    where = batch_sharding(mesh)

    def sharded(local: np.ndarray) -> jax.Array:
        shape = (len(local) if rows is None else rows, *local.shape[1:])
        return jax.make_array_from_process_local_data(where, local, shape)

    return jax.tree.map(sharded, batch)
