# ruff: noqa: E501 - files hold lines as they are
"""What a first file says for repositories as people have them, and that any repository gets one that loads."""

from __future__ import annotations

import json
import subprocess
import textwrap
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.config import Config
from gpurun.domain.repository import MAX_ALL_BYTES, MAX_PATHS, Listed, RepoFacts, nearest, worth_reading
from gpurun.plan.load import load
from gpurun.plan.starter import doubts, few_lines, guess, rows, short_starter, whole_file
from ops.local_services import free_port
from tests.unit.plan.starter.repositories import (
    BARE,
    CONDA,
    CPU,
    CUDA,
    EVERY,
    GRADIO,
    LIBRARY,
    MONOREPO,
    NOTEBOOK,
    PACKAGE,
    VLLM,
    facts_of,
)


def smoke(files):
    """The job that the whole file has."""
    return load(whole_file(guess(facts_of(files)))).jobs["smoke"]


def told(files):
    return "\n".join(doubts(guess(facts_of(files))))


@pytest.mark.parametrize("name", EVERY)
def test_file_and_lines_say_the_same(name):
    found = guess(facts_of(EVERY[name]))
    whole, few = load(whole_file(found)), load(few_lines(found, "smoke"))
    job, short = whole.jobs["smoke"], few.jobs["smoke"]
    assert (short.image, short.models, short.resources, short.workdir) == (
        job.image,
        job.models,
        job.resources,
        job.workdir,
    )
    assert job.setup.replace("&&\n", "&& ").rstrip() == short.setup
    assert all(len(line) <= 120 or "://" in line or "pip install" in line for line in whole_file(found).split("\n")[:4])


def test_a_demo_that_serves_is_started_asked_and_stopped():
    job = smoke(GRADIO)
    assert job.image == "docker.io/pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime"
    assert [(model.id, model.revision) for model in job.models] == [("Qwen/Qwen2.5-0.5B-Instruct", "main")]
    assert job.setup.endswith("pip install -r requirements.txt\n")
    assert "install -y --no-install-recommends ffmpeg &&" in job.setup
    assert job.run.startswith("python3 app.py &\nuntil ")
    assert "('127.0.0.1', 7861)" in job.run
    assert job.needs().gpus == 1


SERVER = """\
import gradio
import http.server
demo = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), http.server.BaseHTTPRequestHandler)
def launch(server_port): demo.serve_forever()
launch(server_port=PORT)
"""


@pytest.mark.parametrize("form", ["text", "line"])
@pytest.mark.parametrize("works", [True, False])
def test_the_shell_that_waits_for_a_server_ends_with_its_verdict(tmp_path, form, works):
    text = SERVER.replace("PORT", str(free_port()))
    (tmp_path / "gradio.py").write_text("")
    app = text if works else text.replace("demo = ", "raise SystemExit(3)\ndemo = ")  # before anybody could connect
    (tmp_path / "app.py").write_text(app)
    command = guess(facts_of({"app.py": app})).command
    shell = getattr(command, form)
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, timeout=30, check=False)
    assert (done.returncode == 0) is works


def test_an_image_with_an_entrypoint_gets_the_whole_command():
    job = smoke(VLLM)
    assert job.image == "docker.io/vllm/vllm-openai:v0.8.5"
    assert job.run.startswith(
        "python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-7B-Instruct --port 8080"
    )
    assert [model.id for model in job.models] == ["Qwen/Qwen2.5-7B-Instruct"]
    assert "`/chat.jinja` is a path of the image" in told(VLLM)


def test_a_package_is_installed_with_its_tests_and_a_python_that_it_allows():
    job = smoke(PACKAGE)
    assert (job.image, job.setup, job.run) == (
        "docker.io/library/python:3.11-slim",
        "pip install -e '.[test]'",
        "python3 -m pytest -q tests",
    )
    assert job.needs().gpus == 0


@pytest.mark.parametrize(
    ("wanted", "image"),
    [(">=3.8", "3.12"), (">=3.13", "3.13"), ("~=3.9,<3.11", "3.10"), ("<3.9", "3.8"), ("^3.10", "3.12"), ("*", "3.12")],
)
def test_the_usual_python_unless_the_project_wants_another(wanted, image):
    files = {"pyproject.toml": f'[project]\nname = "a"\nrequires-python = "{wanted}"\n'}
    assert smoke(files).image == f"docker.io/library/python:{image}-slim"


def test_a_notebook_is_executed_with_what_its_cells_install():
    job = smoke(NOTEBOOK)
    assert job.setup == "pip install accelerate datasets peft==0.11.1 transformers jupyter nbconvert ipykernel"
    assert job.run.endswith("--execute --output-dir out finetune.ipynb")
    assert job.artifacts == ("out/**",)
    assert [model.id for model in job.models] == ["distilbert/distilbert-base-uncased"]
    assert "load_dataset('imdb'): a data set; write its id under `datasets:`" in told(NOTEBOOK)


def test_a_base_without_python_is_replaced_and_said():
    job = smoke(CUDA)
    assert job.image == "docker.io/pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime"
    assert "git libgl1" in job.setup
    assert "'diffusers>=0.27'" in job.setup
    assert job.run == "python3 generate.py --prompt 'a cat'"
    assert [(model.id, model.revision) for model in job.models] == [
        ("CompVis/stable-diffusion-safety-checker", "a" * 40)
    ]
    assert "nvidia/cuda:12.1.1-cudnn8-runtime-ubuntu22.04`, which has no python3" in told(CUDA)
    assert "generate.py:8 from_pretrained(args.model): the name is not written there" in told(CUDA)


SCRIPT = {"scripts/generate.py": "import torch\n", "demo.py": "print(1)\n"}


@pytest.mark.parametrize(
    ("orders", "run", "source"),
    [
        (
            'ENTRYPOINT ["python"]\nCMD ["scripts/generate.py","--prompt","hi"]',
            "python scripts/generate.py --prompt hi",
            "ENTRYPOINT and CMD of `Dockerfile`, lines 2 and 3, joined.",
        ),
        (
            'CMD ["scripts/generate.py"]\nENTRYPOINT ["python", "-u"]',
            "python -u scripts/generate.py",
            "lines 2 and 3, joined.",
        ),
        ("ENTRYPOINT python scripts/generate.py --a\nCMD --b", "python scripts/generate.py --a", "`Dockerfile:2`."),
        (
            'ENTRYPOINT ["tini", "--"]\nCMD python scripts/generate.py',
            "tini -- /bin/sh -c 'python scripts/generate.py'",
            "lines 2 and 3, joined.",
        ),
        ('ENTRYPOINT []\nCMD ["python", "./scripts/generate.py", "x y"]', "python ./scripts/generate.py 'x y'", ":3`."),
        ('ENTRYPOINT ["python", "scripts/generate.py"]', "python scripts/generate.py", "`Dockerfile:2`."),
        (
            'ENTRYPOINT ["python"]\nCMD ["scripts/generate.py"]\nFROM base',
            "python scripts/generate.py",
            "lines 2 and 3, joined.",
        ),
        (
            'CMD ["demo.py"]\nFROM base\nENTRYPOINT ["python", "scripts/generate.py"]',
            "python scripts/generate.py",
            "`Dockerfile:4`.",
        ),
        ('ENTRYPOINT ["python"]\nCMD ["/app/other.py"]', "python3 demo.py", "`demo.py`"),
        (
            'ENTRYPOINT ["python"]\nCMD ["/app/other.py", "-v"]',
            "python3 demo.py",
            "The command of `Dockerfile:3` was not taken: python /app/other.py -v",
        ),
        (
            'ENTRYPOINT ["python3","-m"]\nCMD ["scripts.generate","--prompt","x"]',
            "python3 -m scripts.generate --prompt x",
            "lines 2 and 3, joined.",
        ),
    ],
)
def test_entrypoint_and_cmd_are_joined_as_docker_joins_them(orders, run, source):
    files = {**SCRIPT, "Dockerfile": f"FROM docker.io/library/python:3.12 AS base\n{orders}\n"}
    assert smoke(files).run == run
    assert source in told(files)


def test_the_module_of_a_joined_command_is_looked_into():
    model = 'M.from_pretrained("a/b")\n'
    files = {
        "src/generate.py": model,
        "other.py": 'M.from_pretrained("c/d")\n',
        "Dockerfile": 'FROM python:3.12\nENTRYPOINT ["python3","-m"]\nCMD ["src.generate"]\n',
    }
    assert [one.id for one in smoke(files).models] == ["a/b"]


@pytest.mark.parametrize(
    ("path", "base", "key"),
    [
        ("Dockerfile", "python:3.12", "build: ."),
        ("Dockerfile", "nvidia/cuda:12.1.1-runtime-ubuntu22.04", "build: ."),
        ("docker/Dockerfile", "python:3.12", "build: {dockerfile: docker/Dockerfile}"),
    ],
)
def test_a_dockerfile_could_also_be_built(path, base, key):
    found = guess(facts_of({path: f"FROM {base}\n", "demo.py": GUARD}))
    assert any(f"Or write `{key}` in the place of `image`" in told for told in found.image.because)


GUARD = 'from transformers import AutoModel\n\nif __name__ == "__main__":\n    AutoModel.from_pretrained("a/b")\n'
PROJECT = '[project]\nname = "x"\nversion = "1"\n'


@pytest.mark.parametrize(
    ("files", "folder", "run"),
    [
        ({"packages/asr/transcribe.py": GUARD}, "", "python3 packages/asr/transcribe.py"),
        ({"packages/tts/pyproject.toml": PROJECT, "packages/tts/tts/__main__.py": GUARD}, "packages/tts", "python3 -m tts"),
        ({"pk/__init__.py": "", "pk/__main__.py": GUARD}, "", "python3 -m pk"),
        ({"foo/bar.py": GUARD.replace('"__main__"', "'__main__'")}, "", "python3 foo/bar.py"),
        ({"foo/__init__.py": "", "foo/bar.py": GUARD}, "", "python3 -m foo.bar"),
        ({"pyproject.toml": PROJECT, "x/__init__.py": "", "x/__main__.py": GUARD}, "", "python3 -m x"),
        ({"pyproject.toml": PROJECT, "src/x/__init__.py": "", "src/x/__main__.py": GUARD}, "", "python3 -m x"),
        ({"src/x/__init__.py": "", "src/x/deep/__init__.py": "", "src/x/deep/m.py": GUARD}, "",
         "PYTHONPATH=src python3 -m x.deep.m"),
        ({"pyproject.toml": PROJECT, "x/__init__.py": "", "x/y.py": ""}, "", 'python3 -c "import x"'),
        ({"odd-name/__main__.py": GUARD}, "", "python3 odd-name/__main__.py"),
    ],
)  # fmt: skip
def test_what_is_made_to_be_run_is_run(files, folder, run):
    found = guess(facts_of(files))
    assert (found.folder, smoke(files).run) == (folder, run)
    if "import x" not in run:
        assert [one.id for one in found.models] == ["a/b"]


def test_of_several_that_can_be_run_the_likeliest_is_and_the_others_are_named():
    files = {
        "tools/a.py": GUARD,
        "lib/convert.py": GUARD,
        "lib/__main__.py": GUARD,
        "deep/down/infer.py": GUARD,
        "tests/helper.py": GUARD,
    }
    assert smoke(files).run == "python3 deep/down/infer.py"
    assert (
        "run: There are others that can be run: `python3 -m lib`, `python3 lib/convert.py`, `python3 tests/helper.py`, "
        "`python3 tools/a.py`."
    ) in told(files)
    both = {"asr/other.py": 'if __name__ == "__main__":\n    pass\n', "asr/deep/transcribe.py": GUARD}
    assert smoke(both).run == "python3 asr/deep/transcribe.py"
    needs = {"lib/convert.py": GUARD + "p.add_argument('--to', required=True)\n"}
    assert smoke(needs).run == "python3 lib/convert.py --help"


READS = """\
import os
from os import environ, getenv
A = os.environ["HF_TOKEN"]
B = os.environ.get("WANDB_API_KEY", "")
C = os.getenv("DB_PASSWORD"), getenv("AWS_ACCESS_KEY_ID"), environ["WEBHOOK_SECRET"]
D = os.environ["TOKENIZERS_PARALLELISM"], os.environ.get("HOME"), os.getenv(A), os.getenv("MAX_TOKENS"), os.getenv("k")
E = os.environ["GPURUN_TOKEN"], cache.get("OTHER_TOKEN")
"""


def test_variables_that_look_like_credentials_become_secrets():
    found = guess(facts_of({"demo.py": READS}))
    assert smoke({"demo.py": READS}).secrets == (
        *("HF_TOKEN", "WANDB_API_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "WEBHOOK_SECRET"),
    )
    assert "HF_TOKEN in `demo.py:3`, WANDB_API_KEY in `demo.py:4`" in whole_file(found)
    assert "`.env` at the top holds the values for `gpurun run`" in " ".join(whole_file(found).replace("#", "").split())
    assert ("secrets", "HF_TOKEN, WANDB_API_KEY, AWS_ACCESS_KEY_ID, DB_PASSWORD, WEBHOOK_SECRET") in rows(found)
    assert any(one.startswith("secrets: names only") for one in doubts(found))


def test_only_the_files_that_the_command_reaches_name_its_secrets():
    files = {"demo.py": "import helper\n", "helper.py": READS, "train.py": "import os\nos.environ['FAR_TOKEN']\n"}
    assert "HF_TOKEN" in smoke(files).secrets
    assert "FAR_TOKEN" not in smoke(files).secrets


def test_examples_of_dotenv_give_names_and_no_values():
    facts = facts_of(
        {".env.example": "# X_TOKEN=1\nexport HF_TOKEN=hf_geheim\nSEED=1\nOPENAI_API_KEY=\n", "demo.py": ""}
    )
    found = guess(replace(facts, dotenv=("OWN_SECRET", "HF_TOKEN", "PORT")))
    assert [(one.name, one.where) for one in found.secrets] == [
        ("HF_TOKEN", ".env.example"),
        ("OPENAI_API_KEY", ".env.example"),
        ("OWN_SECRET", ".env"),
    ]
    assert "geheim" not in whole_file(found) + str(doubts(found)) + str(rows(found))


ASKS = 'import os\nfrom vllm import LLM\nLLM(model=os.environ.get("MODEL_ID", "a/code"))\n'


@pytest.mark.parametrize(
    ("code", "alone", "with_image"),
    [
        ('LLM(model=os.environ.get("X", "a/b"))', "a/b", "c/d"),
        ('LLM(model=os.getenv("X", default="a/b"))', "a/b", "c/d"),
        ('LLM(model=os.getenv("X") or "a/b")', "a/b", "c/d"),
        ('ID = os.getenv("X", "a/b")\nLLM(model=ID)', "a/b", "c/d"),
        ('B = "a/b"\nID = os.getenv("X", B)\nLLM(model=ID)', "a/b", "c/d"),
        ('ID: str = os.environ["X"]\nLLM(model=ID)', "", "c/d"),
        ('LLM(model=os.environ.get("X", f()))', "", "c/d"),
        ('LLM(model=os.environ.get("X"))', "", "c/d"),
        ('LLM(model=args.model or "a/b")', "", ""),
        ('ID = os.getenv("X", "a/b")\nID = input()\nLLM(model=ID)', "", ""),
    ],
)
def test_the_default_of_a_variable_is_the_name_of_a_model(code, alone, with_image):
    for dockerfile, model in (("", alone), ("FROM python:3.12\nENV X=c/d\n", with_image)):
        found = guess(facts_of({"demo.py": code, "Dockerfile": dockerfile}))
        assert [one.id for one in found.models] == ([model] if model else [])
        assert ("the name is not written there" in "\n".join(doubts(found))) == (not model)


def test_what_the_image_of_the_dockerfile_sets_is_set_for_the_job():
    order = 'ARG WHO=qwen\nENV MODEL_ID=$WHO/tiny \\\n    SEED=7\nENV TEXT one  two\nENV SEED="8" NO=null\n'
    found = guess(facts_of({"Dockerfile": f"FROM python:3.12\n{order}", "demo.py": ASKS}))
    assert [one.id for one in found.models] == ["qwen/tiny"]
    for text, job in ((whole_file(found), "smoke"), (few_lines(found, "x"), "x")):
        assert load(text).jobs[job].env == {"MODEL_ID": "qwen/tiny", "TEXT": "one two", "SEED": "8", "NO": "null"}
    assert (
        "    # From ENV of `Dockerfile:3`: the job does not run in the image that it builds.\n    env:\n"
        in whole_file(found)
    )
    assert ("env", "MODEL_ID=qwen/tiny") in rows(found)


@pytest.mark.parametrize(
    "order",
    [
        "PYTHONPATH=src:/app", "DATA=/data", "MODEL_ID=$GIVEN", "API_KEY=abc", "wandb_api_key=abc", "PORT=80",
        "GRADIO_SERVER_NAME=0.0.0.0", "X=hf_abcdefghijklmnopqrstuvwxyz012345", "LONG=" + "x" * 300, "X=${A:+b}",
    ],
)  # fmt: skip
def test_what_is_of_the_image_or_a_credential_is_named_and_not_taken_over(order):
    files = {"Dockerfile": f"FROM python:3.12\nENV {order}\n", "demo.py": ""}
    name, _, value = order.partition("=")
    assert not smoke(files).env
    assert f"env: `Dockerfile:2` sets {name} in the image that it builds" in told(files)
    assert "under `env:`, or under `secrets:`." in told(files)
    assert value not in whole_file(guess(facts_of(files)))


def test_what_a_job_may_not_set_is_no_word():
    files = {"Dockerfile": "FROM python:3.12\nENV HF_HOME=/cache PATH=/x:$PATH\n", "demo.py": ""}
    assert "HF_HOME" not in whole_file(guess(facts_of(files)))
    assert "env:" not in told(files)


def test_without_a_value_in_the_dockerfile_the_default_of_the_code_is_written():
    files = {
        "Dockerfile": "FROM python:3.12\nARG M\nENV MODEL_ID=$M DATA=/data\n",
        "demo.py": ASKS + "os.getenv('DATA', './data')",
    }
    found = guess(facts_of(files))
    assert dict(smoke(files).env) == {"MODEL_ID": "a/code", "DATA": "./data"}
    assert [one.id for one in found.models] == ["a/code"]
    assert "env: The default of the code for MODEL_ID, DATA." in doubts(found)


@pytest.mark.parametrize(
    "orders", ["ENV \\\n\nENV SEED=7", "ENV \\\n\nSEED=7", 'ENV ""\nENV SEED=7', "ENV \\\n# why\n  SEED=7"]
)
def test_an_order_that_goes_on_behind_an_empty_line(orders):
    files = {"Dockerfile": f"FROM python:3.12\n{orders}\n", "demo.py": ""}
    told(files)  # of any text: nothing is raised
    if "ENV SEED" not in orders:
        assert dict(smoke(files).env) == {"SEED": "7"}


def test_nothing_gets_a_job_that_fails_and_says_so():
    job = smoke({})
    assert subprocess.run(["sh", "-c", job.run], capture_output=True, check=False).returncode == 1
    assert "write a command" in told({})


def test_a_repository_of_several_projects_gets_a_job_for_one():
    job = smoke(MONOREPO)
    assert (job.workdir, job.run) == ("services/worker", "python3 main.py")
    assert [model.id for model in job.models] == ["BAAI/bge-small-en-v1.5"]
    assert "services/api" in whole_file(guess(facts_of(MONOREPO)))


def test_only_well_known_imports_become_packages():
    job = smoke(BARE)
    assert job.setup == "pip install transformers"
    assert [model.id for model in job.models] == ["Qwen/Qwen2.5-0.5B"]


def test_torch_without_cuda_asks_for_no_gpu():
    job = smoke(CPU)
    assert job.needs().gpus == 0
    assert job.image == "docker.io/library/python:3.12-slim"
    assert "uvicorn main:app" in job.run


@pytest.mark.parametrize(
    ("files", "image", "said"),
    [
        (
            {"requirements.txt": "torch==2.3.1\n", "pyproject.toml": '[project]\nname="a"\ndependencies=["torch"]\n'},
            "2.3.1-cuda12.1-cudnn8-runtime",
            "`requirements.txt` asks for torch 2.3.1; this image has torch 2.3.1.",
        ),
        (
            {"requirements.txt": "torch\n", "pyproject.toml": '[project]\nname="a"\ndependencies=["torch==2.4.0"]\n'},
            "2.4.1-cuda12.4-cudnn9-runtime",
            "`pyproject.toml` asks for torch 2.4.0; this image has torch 2.4.1.",
        ),
        (
            {"requirements.txt": "transformers\n", "pyproject.toml": '[project]\nname="a"\ndependencies=["torch"]\n'},
            "2.6.0-cuda12.4-cudnn9-runtime",
            "`pyproject.toml` asks for torch; this image has torch 2.6.0.",
        ),
    ],
)
def test_a_fixed_version_counts_more_than_a_plain_name(files, image, said):
    assert smoke(files).image == f"docker.io/pytorch/pytorch:{image}"
    assert said in whole_file(guess(facts_of(files)))


def test_conda():
    job = smoke(CONDA)
    assert job.setup == "conda env update -n base -f environment.yml"
    assert "miniforge3" in job.image


def test_a_job_gets_the_models_that_its_command_reaches():
    found = guess(facts_of(LIBRARY))
    assert [model.id for model in found.models] == ["hf-internal-testing/tiny-random-gpt2"]
    assert [model.id for model in found.other_models] == ["meta-llama/Llama-3.1-70B"]
    assert "tests/test_lib.py:5 from_pretrained('gpt2'): an old short name" in told(LIBRARY)
    assert "#   - {id: meta-llama/Llama-3.1-70B, revision: main}  # examples/big.py:2" in whole_file(found)


@pytest.mark.parametrize(
    ("code", "models", "why"),
    [
        ('X = "a/b"\nM.from_pretrained(X)', ["a/b"], ""),
        ('X = "a/b"\nX = "c/d"\nM.from_pretrained(X)', [], "not written"),
        ('X = "a/b"\ndef f(X): M.from_pretrained(X)', [], "not written"),
        ('import os\nM.from_pretrained(os.environ["M"])', [], "not written"),
        ('M.from_pretrained("./here")', [], ""),
        ('M.from_pretrained("checkpoints/best")', [], "looks like a folder"),
        ('M.from_pretrained(f"{a}/b")', [], "not written"),
        ('snapshot_download(repo_id="a/b", revision="v1.0")', ["a/b@v1.0"], ""),
        ('snapshot_download("a/b", repo_type="dataset")', [], "a data set"),
        ('hf_hub_download("a/b", "x.gguf", revision="0123ABCD")', ["a/b@0123abcd"], ""),
        ('X = "refs/pr/3"\nsnapshot_download("a/b", revision=X)', ["a/b@refs/pr/3"], ""),
        ('pipeline("text-generation", model="a/b")', ["a/b"], ""),
        ("redis.pipeline()\npipeline(x)\npipeline()", [], ""),
        ('vllm.LLM(model="a/b")', ["a/b"], ""),
        ('PeftModel.from_pretrained(base, "a/b")', ["a/b"], ""),
        ('torch.hub.load("pytorch/vision", "resnet50")', [], "not pinned"),
        ('json.load(x)', [], ""),
        ("M.from_pretrained()", [], ""),
        ("M.from_pretrained(", [], ""),
    ],
)  # fmt: skip
def test_models_of_calls(code, models, why):
    found = guess(facts_of({"demo.py": code}))
    assert [f"{one.id}@{one.revision}" if one.revision else one.id for one in found.models] == models
    assert why in "\n".join(doubts(found))
    assert bool(found.untold) is bool(why)


@pytest.mark.parametrize(
    ("written", "lost"),
    [("args.rev", "args.rev"), ("'a b'", "'a b'"), ("f(1)", "…"), ("'a..b'", "'a..b'"), ("None", ""), ("'main'", "")],
)
def test_a_revision_that_cannot_be_taken_over_is_told(written, lost):
    files = {"demo.py": f"M.from_pretrained('a/b', revision={written})"}
    whole = whole_file(guess(facts_of(files)))
    line = "      - {id: a/b, revision: main}  # demo.py:1"
    assert (f"{line} asks for revision={lost}; write it here\n" if lost else f"{line}\n") in whole
    assert (f"models: demo.py:1 asks for revision={lost}; write it here instead of main." in told(files)) is bool(lost)


def test_a_folder_of_the_repository_is_no_model():
    found = guess(facts_of({"demo.py": 'M.from_pretrained("acme/tiny")', "acme/tiny/config.json": "{}"}))
    assert (found.models, found.untold) == ((), ())


def test_what_may_hold_a_secret_is_not_taken_over():
    files = {
        "Dockerfile": 'FROM python:3.11\nENV HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\nRUN pip install --index-url '
        'https://user:geheim@host/simple x\nCMD ["python", "go.py", "--api-key", "geheim123"]\n',
        "requirements.txt": "--extra-index-url https://user:geheim@host/simple\nnumpy\n",
    }  # fmt: skip
    found = guess(facts_of(files))
    assert "geheim" not in whole_file(found) + few_lines(found, "smoke") + str(rows(found)) + str(doubts(found))
    assert "hf_abc" not in whole_file(found)
    assert found.setup == ("pip install -r requirements.txt",)


def test_six_lines_for_a_plain_repository():
    assert short_starter(facts_of(PACKAGE), "nightly.2") == textwrap.dedent("""\
        version: 1
        jobs:
          "nightly.2":
            image: docker.io/library/python:3.11-slim
            setup: pip install -e '.[test]'
            run: python3 -m pytest -q tests""")


# any repository

NAMES = st.sampled_from(
    ["Dockerfile", "sub/Dockerfile", "requirements.txt", "requirements-dev.txt", "pyproject.toml", "setup.py", "app.py",
     "main.py", "a b/demo.py", "tests/test_x.py", "README.md", ".env.example", "packages.txt", "environment.yml", "x.ipynb", "ü/n.ipynb",
     ".python-version", "pkg/__init__.py", "pkg/__main__.py", "a b/c.py", "lib/d.py", "src/pkg/__init__.py"]
)  # fmt: skip
PIECES = st.sampled_from(
    ["FROM ", "python:3.12", "nvidia/cuda:12", "a:b:c", "python:3:4", "Python", "AS x\n", "CMD ", '["a", "b: c # d"]\n', "RUN pip install ", "x==1\n",
     "ENTRYPOINT ", "python3 app.py\n", "\\\n", "ARG A=1\n", "$A", "torch==2.1.0\n", "vllm", "\n", " ", "'", '"', "# x", ": ",
     "[project]\n", 'name = "a"\n', "[project.scripts]\n", '"a: b" = "c"\n', 'requires-python = ">=3.9"\n', "dependencies = [",
     '"torch"', "]\n", "import gradio\n", 'M.from_pretrained("', "org/model", '")\n', "launch(port=1)\n", "def f(", '\nif __name__ == "__main__":\n ',
     "revision=", 'os.getenv("A_TOKEN")\n', "ENV ", "B_KEY=1\n", "C=1 no=2 D=$E\n", 'os.getenv("C", "a/b")', "no", "null", "1e5", "0x10", "{", "}", "- ", "&a", "*a", "!t", "%", "@", "\t", "\u2028", "\x00", "\ud800",
     "é", "😀", '{"cells": [{"cell_type": "code", "source": ["!pip install ', '"]}]}', "app_file: x.py\n", "||", "&&", ";"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))
FILES = st.dictionaries(st.one_of(NAMES, st.text(min_size=1, max_size=20)), TEXTS, max_size=8)


def facts_anyhow(files):
    clean = {path: text.encode("utf-8", "replace").decode() for path, text in files.items()}
    return facts_of(clean)


@given(FILES, st.sampled_from(["smoke", "no", "null", "1.0", "a.b", "y"]))
def test_whatever_the_repository_the_result_loads(files, job):
    found = guess(facts_anyhow(files))
    assert isinstance(load(whole_file(found)), Config)
    read = load(few_lines(found, job)).jobs[job]
    assert read.run == found.command.line
    assert read.setup == " && ".join(found.setup)
    assert [model.id for model in read.models] == [model.id for model in found.models]
    assert load(whole_file(found)).jobs["smoke"].run.rstrip("\n") == found.command.text.rstrip("\n")
    assert all("\n" not in line for line in doubts(found))


@given(st.lists(st.tuples(st.text(min_size=1, max_size=30), st.integers(0, 10**6)), max_size=50))
def test_a_look_is_bounded(listed):
    entries = [Listed(path, size) for path, size in listed]
    near, _ = nearest(entries)
    read = worth_reading(near)
    assert set(read) <= set(near) <= set(entries)
    assert sum(one.size for one in read) <= MAX_ALL_BYTES
    assert all(one.path.isprintable() for one in near)


def test_the_shallow_paths_are_kept():
    deep = [Listed(f"data/{n}/x.bin", 1) for n in range(MAX_PATHS + 5)]
    near, is_cut = nearest([*deep, Listed("app.py", 5)])
    assert near[0].path == "app.py"
    assert is_cut
    assert len(near) == MAX_PATHS


HOSTILE = {
    "brackets": "(" * 60_000,
    "minus": "-" * 60_000 + "1",
    "not": "not " * 15_000 + "x",
    "plus": "1+" * 30_000 + "1",
    "lambda": "lambda:" * 8_000 + "1",
    "attributes": "a" + ".b" * 30_000 + '.from_pretrained("a/b")',
    "calls": "f" + "()" * 30_000 + "# from_pretrained",
    "escapes": 'x = "\\d"\nM.from_pretrained("a/b")',
    "deep json": '{"cells":' + "[" * 60_000,
    "deep toml": "a = " + "[" * 60_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("path", ["app.py", "x.ipynb", "pyproject.toml", "Dockerfile", "requirements.txt"])
def test_a_hostile_file_is_passed_over(kind, path):
    text = (
        f"from_pretrained\n{HOSTILE[kind]}"
        if path == "app.py" and "from_pretrained" not in HOSTILE[kind]
        else HOSTILE[kind]
    )
    found = guess(RepoFacts(paths=(path,), texts={path: text}))
    load(whole_file(found))
    read = [model.id for model in found.models]
    if (path, kind) == ("app.py", "escapes"):
        assert read == ["a/b"]  # a warning of the compiler is no fault
    else:
        assert found == guess(RepoFacts(paths=(path,), texts={path: ""}))


def test_a_notebook_that_is_none(tmp_path):
    for text in ("[]", "{}", '{"cells": 5}', '{"cells": [5, {"cell_type": "code", "source": 7}]}', json.dumps("x")):
        load(whole_file(guess(RepoFacts(paths=("x.ipynb",), texts={"x.ipynb": text}))))
