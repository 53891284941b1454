r"""Agent protocol 1: the words both sides share. Python >= 3.8, no import at all.

Bodies that are not raw bytes are *records*: `<name> <length>\n<bytes>\n`, repeated; a name may repeat and order is
kept. No JSON, so that the agent starts without the `json` module (7 ms, and absent from Debian's python3-minimal).

Every request carries `Authorization: Bearer <token>`: the claim token for `claim`, the run token for all others.
Every 2xx answer with a records body has `cancel` (`0` or `1`: end the command, then finish) and `deadline` (unix
seconds of the hard end). 401 and 410 mean: you are not wanted, kill the command, exit 0. 5xx and broken connections:
try again until the deadline.

POST /agent/v1/claim       {boot_id, agent, landed.<key>...}                              -> 200 spec (below)
POST /agent/v1/phase       {phase}                                           -> 200 {cancel, deadline, out_of_disk}
        `out_of_disk` (`0` or `1`) says why `cancel` is set: the job uses more of the disk than it may. End it at once,
        collect, finish as failed(disk). Whoever hears `cancel` asks again with the phase that it is in.
PUT  /agent/v1/streams/<log|metrics>?offset=N[&end=1]      raw bytes, 0..4 MiB
        -> 200 {next, durable, cancel, deadline, masks}; 409 {next, ...}: go back or forward to `next`; 413: quota
        `next` may be below offset + length: a tail that could be the start of a secret is not taken yet. Keep it and
        send it again together with newer bytes, never alone; `end=1` (nothing follows) takes everything.
GET  /agent/v1/masks                               -> 200 {masks, mask..., cancel, deadline}: everything to be masked
        To be asked when `masks` in an answer is more than it was: the bot has learned of a secret.
GET  /agent/v1/source                              -> 200 tar (ustar with pax headers), commit id in the global header
GET  /agent/v1/models/<index>/<path>   [Range: bytes=N-]                                  -> 200 or 206 bytes; 422 text
        422: the hub does not have what the plan pins (a hash that shows at the end is told to whoever asks again).
        307: the bytes are at `Location`, a secret that opens that one file for a short time, for whoever asks without a
        token. With `?from_bot=1` the bot passes them on itself.
POST /agent/v1/layer       {state, sha256, size, setup_ms, detail}       -> 200 {}; 409 text: not kept, and why
        `made`: what `setup` did is in the volume, before `run` begins. `spoilt`: what is there is of no use.
PUT  /agent/v1/installed   UTF-8 text, <= 1 MiB                                              -> 200 {}; may be repeated
        What is installed when `run` begins (gpurun_agent.installed). Kept beside the artifacts as INSTALLED.
PUT  /agent/v1/artifacts/<path>?offset=N&size=S&sha256=H   raw bytes, <= 4 MiB
        -> 200 {next}; 409 {next}; 413: quota; 422 text: not this file (path, hash). One file at a time: another path,
        or offset 0, starts anew. It is collected when `next` == size; an empty file is one PUT of no bytes.
PUT  /agent/v1/artifacts   {path, sha256, data, path, sha256, data...}                    -> 200 {refused...}
        At most MAX_TOGETHER files, of at most 4 MiB with all that is around them.
        Whole files: all of them are kept when this is answered with 200, but for those that `refused` names (repeated,
        `<index> <status> <text>`, the first file is 0). May be repeated.
        Who was told to stop has COLLECT_S for all of this, from when it said `collecting`.
POST /agent/v1/finish      {result, exit_code, reason, detail, left_out, log_size, metrics_size, ...}
                           -> 200 {}; may be repeated
        `passed` counts only with `exit_code` 0. `left_out`: artifacts that were not sent, in sentences and
        a line for each name.

The spec, answer of `claim`:
    token                    the run token (secret; mask it)
    attempt                  attempt id
    number                   attempt number, 1 for the first
    cancel, deadline         as everywhere
    max_duration_s           from the start of `setup`
    log_quota                bytes of log, then one last line says so
    source                   40-hex commit id; empty: no source
    setup, run               shell text; an empty one is skipped
    workdir                  the folder of the source in which both start; empty: its top
    env                      repeated, `NAME=value`
    secret                   repeated, `NAME=value`: the same, and never shown
    masks                    grows with the secrets that the bot knows of
    mask                     repeated, bytes to be masked in the log wherever they stand (at least 6): every form of
                             every secret, because the bot alone knows how to spell them
    model                    repeated, `<index>\0<id>\0<revision>\0<target>`; target may be empty
    file                     repeated, `<model index>\0<size>\0<sha256>\0<etag>\0<path>`
    weights                  `mounted`: the bot has verified all files and had them mounted read-only as the hub cache
    layer                    `take\0<sha256>\0<size>\0<day>\0<ms of setup>`: the layer in the volume at /gpurun/layer,
                             which is read-only; `make\0<most bytes>`: the volume is empty, a layer may be made there
    layer_input              repeated, a path of the commit that `setup` may change (gpurun_agent.layer)
    artifact                 repeated, a glob under `workdir` (gpurun_agent.globs)
    artifact_files           how many of them are kept
    artifact_file_bytes      the largest that is kept
    artifact_bytes           of all of them together

A line of `metrics` is one JSON object; a value that is not known is `null` or left out, never 0:
    {"t": 1767614400.0, "cpu_pct": 12.5, "ram_mib": 900, "ram_total_mib": 16000, "disk_mib": 10, "disk_total_mib": 100,
     "net_rx_bytes": 1, "net_tx_bytes": 1,
     "gpus": [{"index": 0, "util_pct": 97, "vram_mib": 8000, "vram_total_mib": 24564, "power_w": 310.5, "temp_c": 64,
               "sm_mhz": 2520}]}
`t` is the instance's own unix time; `cpu_pct` is of all cores together (0..100).

Lines of `log` that start with `::gpurun:: ` are the agent's own, one before each command (`setup`, `run`) and when
there is something to tell (`weights 40 of 100 MiB (40 %)`). In what commands print, `::gpurun::` becomes `::gpurun:.`,
so that nothing else reads so. Who takes over the agent can write such lines too: they are for people.

An agent that could not reach the bot until its end prints what is not durable yet, so that the bot can read it back
from what the provider kept of the output. One line each, at most 4,096 bytes, base64 at the end:
    ::gpurun-log 1 <attempt> <log|metrics> <offset> <bytes>
    ::gpurun-end 1 <attempt> <body of finish>
Of much more than fits, the first and the last bytes are printed; offsets tell what is missing in between.

Secrets are masked to equal length with `*`, over the union of all occurrences, so that offsets agree everywhere.
"""

VERSION = "1"
GIT_FOLDER = "git"
"""Behind `source/`: the `.git` of the work folder."""
PREFIX = "/agent/v1/"
FROM_BOT = "from_bot"

OWN = b"::gpurun::"
"""What lines of `log` that are our own start with."""
NOT_OWN = b"::gpurun:."

MAX_APPEND = 4 * 1024 * 1024
"""Bytes of one stream or artifact append."""

MAX_TOGETHER = 100
"""Artifacts in one request."""

INSTALLED = "gpurun/installed.txt"
"""The path of what is installed among the artifacts; no file of the job is kept under it."""

MAX_INSTALLED = 1024 * 1024
"""Bytes of it."""

COLLECT_S = 100
"""Seconds for the artifacts of a job that was stopped."""

MIN_MASK = 6
"""Shorter secrets are refused where they are registered: masking them would eat the log."""

FRAME_LOG = b"::gpurun-log 1 "
FRAME_END = b"::gpurun-end 1 "

MAX_FRAME = 4096
"""Bytes of a line with something that the bot could not be told."""

PHASES = ("claimed", "source", "weights", "setup", "running", "collecting", "finished")

MOUNTED = "mounted"
"""Of `weights`."""

# results of `finish`
PASSED = "passed"
FAILED = "failed"
TIMEOUT = "timeout"
CANCELLED = "cancelled"
LOST = "lost"

# reasons of `finish`
EXIT = "exit"
SETUP = "setup"
SOURCE = "source"
WORKDIR = "workdir"
WEIGHTS_MISMATCH = "weights_mismatch"
WEIGHTS = "weights"
DISK = "disk"
MAX_DURATION = "max_duration"
DEADLINE = "deadline"
ASKED = "asked"
MISSING_MODULE = "missing_module"
AGENT = "agent"


class BadRecords(ValueError):
    """The body is not records."""


def encode(fields):
    # type: (object) -> bytes
    """Bytes of an iterable of `(name, value)`; a value is str, int or bytes."""
    out = []
    for name, value in fields:  # type: ignore[attr-defined]
        if isinstance(value, int):
            value = str(value)
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape")
        out.append(b"%s %d\n%s\n" % (name.encode("ascii"), len(value), value))
    return b"".join(out)


def decode(body):
    # type: (bytes) -> list[tuple[str, bytes]]
    """`[(name, value)]` in order. Raises BadRecords."""
    fields = []
    at = 0
    while at < len(body):
        end = body.find(b"\n", at, at + 100)
        head = body[at:end].split(b" ") if end > 0 else []
        if len(head) != 2 or not head[0] or not head[1].isdigit() or len(head[1]) > 10:
            raise BadRecords("bad record head at byte %d" % at)
        stop = end + 1 + int(head[1])
        if body[stop : stop + 1] != b"\n":
            raise BadRecords("record at byte %d is cut short" % at)
        fields.append((head[0].decode("ascii", "replace"), body[end + 1 : stop]))
        at = stop + 1
    return fields


class Foreign:
    """Output in which nothing reads as a line of ours. As long as before, wherever it is cut into pieces."""

    def __init__(self) -> None:
        self._begun = b""
        """The end of what was taken, as far as it may be the beginning of OWN."""

    def take(self, data: bytes) -> bytes:
        """The next piece."""
        begun = len(self._begun)
        joined = (self._begun + data).replace(OWN, NOT_OWN)
        tails = (joined[-length:] for length in range(min(len(joined), len(OWN) - 1), 0, -1))
        self._begun = next((tail for tail in tails if OWN.startswith(tail)), b"")
        return joined[begun:]
