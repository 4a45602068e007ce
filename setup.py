"""Packaging of the library, its commands and its configs."""

import pathlib

import setuptools

setuptools.setup(
    name="transformer_jax",
    version="0.1.0",
    description="Which parts of the Transformer matter? Table 3 of the paper, in JAX.",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=setuptools.find_namespace_packages(
        include=["transformer_jax*", "experiments*", "launch*", "configs*"],
        exclude=["experiments.published*"],
    ),
    package_data={"experiments.results": ["page.*"], "launch": ["*.sh"], "": ["*.json"]},
    python_requires=">=3.11",
    install_requires=[
        "absl-py>=2.1",
        "etils>=1.9",
        "flax>=0.12",
        "fsspec>=2025.10",
        "grain>=0.2.10",
        "importlib-resources>=6.0",  # TFDS imports it without asking for it
        "jax>=0.10",
        "jaxtyping>=0.3",
        "matplotlib>=3.10",
        "ml-collections>=1.1",
        "numpy>=2.0",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11.20",
        "pandas>=3.1",  # whose read_csv returns the floats that were written
        "plotly>=6.5",
        "requests>=2.32",
        "rich>=14.0",
        "sacrebleu>=2.5",
        "sacremoses>=0.1.1",
        "scipy>=1.14",
        "sentencepiece>=0.2.1",
        "tensorboardX>=2.6.2",
        "tensorflow-datasets>=4.9.9",
    ],
    extras_require={
        "bench": ["ctranslate2>=4.6", "torch==2.13.0"],  # what the benchmark compares with
        "cuda": ["jax[cuda13]>=0.10"],
        "gcs": ["gcsfs>=2025.10"],  # runs in buckets
        "notebook": ["ipykernel>=7.0", "nbclient>=0.10", "nbformat>=5.10"],
        "parity": ["torch==2.13.0", "transformers==5.24.0"],  # what the parity tests compare with
        "tpu": ["jax[tpu]>=0.10"],
        "wandb": ["wandb>=0.31"],  # --wandb
        "test": [
            "basedpyright>=1.31",
            "beartype>=0.22",
            "gcsfs>=2025.10",
            "pytest>=8.4",
            "pytest-xdist>=3.8",
            "ruff>=0.13",
            "selenium>=4.30",
            "statsmodels>=0.14",  # what the mixed model is compared with
        ],
    },
)
