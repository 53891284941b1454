# ruff: noqa: E501 - files hold lines as they are
"""Repositories as people have them, as files."""

from __future__ import annotations

import json

from gpurun.domain.repository import Listed, RepoFacts, nearest, worth_reading


def facts_of(files: dict[str, str]) -> RepoFacts:
    """What a look at these files gives."""
    listed = [Listed(path, len(text.encode())) for path, text in files.items()]
    near, is_cut = nearest(listed)
    return RepoFacts(
        paths=tuple(one.path for one in near),
        texts={one.path: files[one.path] for one in worth_reading(near)},
        is_cut=is_cut,
    )


GRADIO = {
    "README.md": "---\ntitle: Chat\nsdk: gradio\napp_file: app.py\npython_version: 3.10\n---\n# Chat\n",
    "requirements.txt": "torch==2.3.1\ntransformers>=4.40\ngradio\nspaces  # a comment\n",
    "packages.txt": "ffmpeg\n",
    "app.py": """\
import gradio as gr
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)

def reply(text):
    return tokenizer.decode(model.generate(**tokenizer(text, return_tensors="pt"))[0])

demo = gr.Interface(reply, "text", "text")
if __name__ == "__main__":
    demo.launch(server_port=7861)
""",
}
VLLM = {
    "Dockerfile": """\
ARG VERSION=v0.8.5
FROM vllm/vllm-openai:${VERSION}
COPY chat.jinja /
CMD ["--model", "Qwen/Qwen2.5-7B-Instruct", "--port", "8080", \\
     "--chat-template", "/chat.jinja"]
""",
    "README.md": "# Our server\n",
    "chat.jinja": "{{ messages }}",
    "client.py": "import openai\nclient = openai.OpenAI()\n",
}
PACKAGE = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "tidy"
version = "1"
requires-python = ">=3.9,<3.12"
dependencies = ["numpy>=1.20", "rich"]
[project.optional-dependencies]
docs = ["sphinx"]
test = ["pytest>=8", "hypothesis"]
[project.scripts]
tidy = "tidy.cli:main"
""",
    "src/tidy/__init__.py": "",
    "src/tidy/cli.py": "def main(): ...\n",
    "tests/test_cli.py": "def test_it(): ...\n",
    "tests/test_more.py": "def test_more(): ...\n",
}
NOTEBOOK = {
    "README.md": "# Finetune\n",
    "finetune.ipynb": json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["# Hello"]},
                {"cell_type": "code", "source": ["!pip install -q transformers datasets accelerate peft==0.11.1\n"]},
                {
                    "cell_type": "code",
                    "source": [
                        "import torch\n",
                        "from transformers import AutoModel\n",
                        "from datasets import load_dataset\n",
                        "%matplotlib inline\n",
                        'data = load_dataset("imdb")\n',
                        'model = AutoModel.from_pretrained("distilbert/distilbert-base-uncased", revision="main")\n',
                    ],
                },
            ],
            "metadata": {},
            "nbformat": 4,
        }
    ),
}
CUDA = {
    "Dockerfile": """\
FROM nvidia/cuda:12.1.1-cudnn8-runtime-ubuntu22.04 AS base
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends \\
    python3 python3-pip git libgl1 && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir torch==2.1.2 torchvision "diffusers>=0.27" opencv-python-headless
FROM base
WORKDIR /app
COPY . .
ENTRYPOINT ["python3", "generate.py"]
CMD ["--prompt", "a cat"]
""",
    "generate.py": '''\
import argparse
from diffusers import StableDiffusionPipeline

parser = argparse.ArgumentParser()
parser.add_argument("--prompt", required=True)
parser.add_argument("--model", default="stabilityai/sd-turbo")
args = parser.parse_args()
pipe = StableDiffusionPipeline.from_pretrained(args.model)
safety = StableDiffusionPipeline.from_pretrained("CompVis/stable-diffusion-safety-checker", revision="'''
    + "a" * 40
    + """")
pipe.load_lora_weights("./lora")
""",
}
EMPTY: dict[str, str] = {}
MONOREPO = {
    "README.md": "# Everything\n",
    "web/package.json": "{}",
    "services/api/pyproject.toml": '[project]\nname = "api"\nversion = "1"\ndependencies = ["fastapi"]\n',
    "services/api/api/__init__.py": "",
    "services/api/api/main.py": "from fastapi import FastAPI\napp = FastAPI()\n",
    "services/api/tests/test_api.py": "",
    "services/worker/requirements.txt": "torch\nsentence-transformers\n",
    "services/worker/main.py": 'from sentence_transformers import SentenceTransformer\nm = SentenceTransformer("BAAI/bge-small-en-v1.5")\n',
}
BARE = {
    "inference.py": "import torch, mystery\nfrom transformers import pipeline\nimport sys\n"
    'pipe = pipeline("text-generation", model="Qwen/Qwen2.5-0.5B")\nother = pipeline("text-generation", sys.argv[1])\n',
}
CPU = {
    "requirements.txt": "--extra-index-url https://download.pytorch.org/whl/cpu\ntorch==2.5.1\nfastapi\nuvicorn\n",
    "main.py": "from fastapi import FastAPI\napp = FastAPI()\n",
}
CONDA = {
    "environment.yml": "name: x\nchannels: [pytorch]\ndependencies:\n  - python=3.10\n  - pytorch=2.1\n  - pip:\n    - timm==0.9\n",
    "train.py": "import torch\n",
    "configs/a.yaml": "a: 1\n",
}
LIBRARY = {
    "setup.py": "from setuptools import setup\nsetup(name='lib', install_requires=['torch', 'transformers'], extras_require={})\n",
    "requirements-dev.txt": "pytest\nruff\n",
    "lib/__init__.py": "from lib.load import load\n",
    "lib/load.py": "from transformers import AutoModel\ndef load(name): return AutoModel.from_pretrained(name)\n",
    "examples/big.py": 'from transformers import AutoModel\nAutoModel.from_pretrained("meta-llama/Llama-3.1-70B")\n',
    "tests/test_lib.py": 'from lib import load\ndef test_it(): load("x")\nfrom transformers import AutoConfig\nAutoConfig.from_pretrained("hf-internal-testing/tiny-random-gpt2")\nAutoConfig.from_pretrained("gpt2")\n',
}

EVERY = {
    "gradio": GRADIO, "vllm": VLLM, "package": PACKAGE, "notebook": NOTEBOOK, "cuda": CUDA, "empty": EMPTY,
    "monorepo": MONOREPO, "bare": BARE, "cpu": CPU, "conda": CONDA, "library": LIBRARY,
}  # fmt: skip
