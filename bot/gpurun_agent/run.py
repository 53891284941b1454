"""The story of one attempt in its container: claim, source, weights, setup, run, artifacts, finish."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see loop
import os
import sys
import time

from gpurun_agent import protocol
from gpurun_agent.backlog import Backlog
from gpurun_agent.command import Command, memory_limit_mib, oom_kills
from gpurun_agent.contact import Contact, Errand
from gpurun_agent.ending import End, Ended, Stopped, Unwanted
from gpurun_agent.log import Log
from gpurun_agent.loop import LONGEST_TICK_S, Loop
from gpurun_agent.mask import Masker
from gpurun_agent.spec import BadSpec, Spec
from gpurun_agent.uplink import Stream
from gpurun_agent.wire import Address, Line, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from gpurun_agent.gpu import Gpus
    from gpurun_agent.loop import Timer
    from gpurun_agent.surroundings import Surroundings
    from gpurun_agent.wire import Answer

CANCEL_GRACE_S = 20.0
"""Between TERM and KILL when a person or `max_duration` ends the command; the bot allows 30 s."""

HURRY_GRACE_S = 3.0
"""The same when the container itself is being ended: 10 s is what engines and the boot script give."""

REPORT_S = 4.0
"""For the last words after the deadline or after TERM. With HURRY_GRACE_S it leaves 3 s for the frames."""

ORPHANS_TICK_S = 0.1
"""Nobody tells us when a process ends that is not our own child."""

SAME_MOMENT_S = 1.5
"""A cancel so close before the end of `max_duration` is the bot's own clock saying the same."""

WHY_S = 1.0
"""For the answer to the question why the bot wants an end."""

SAMPLE_S = 1.0
FIRST_SAMPLE_S = 0.2
"""Early, so that a run of less than a second has one."""

SPILL_MAX = 1024 * 1024 * 1024
"""Bytes kept for an unreachable bot; at this point the command waits."""

FRAMES_FIRST = 1024 * 1024
FRAMES_LAST = 9 * 1024 * 1024
FRAMES_METRICS = 1024 * 1024
"""Bytes that are printed when nobody could be told; as base64 within the 16 MiB that an engine keeps for sure."""

MAX_DETAIL = 1500
"""Bytes of the end's detail in a frame."""

MAX_LEFT_OUT = 1500
"""Bytes of what is told of artifacts that were not sent."""

_COMMAND_WAS_STOPPED = (protocol.MAX_DURATION, protocol.ASKED, protocol.DISK)
"""Ends after which there is time for artifacts, unless the container itself is being ended."""

UNREPORTED = 75
"""Exit code when nobody could be told."""


class Run:
    """One attempt. `go` returns the exit code of the agent."""

    def __init__(self, loop: Loop, around: Surroundings) -> None:
        self._loop = loop
        self._around = around
        self._address = Address(around.uplink)
        self._contact = Contact(around.deadline)
        self._token = around.claim
        self._control = self.new_line()
        self._phase_errand: Errand | None = None
        self._phase = "claimed"
        self._phase_wanted = ""
        self._ends_at = 0.0
        """Monotonic end of `max_duration`; 0 before `setup`."""
        self._gpus: Gpus | None = None
        self._notes: list[str] = []
        self._hurry_since = 0.0
        self._why: Errand | None = None
        """Why the bot wants an end."""
        self._why_until = 0.0
        self._masks: int | None = None
        """How many secrets the masker was told of; None before there is one."""
        self._masks_errand: Errand | None = None
        self._out_of_disk = False
        self._began = False
        """A command was started."""
        self._left_out = ""
        """Which artifacts were not sent."""
        self._collect_until = 0.0
        """Monotonic, once it is known that somebody waits for the end; 0 before."""
        self._folder = around.work
        """Where the commands start, and what artifacts are relative to."""
        self._installed: Errand | None = None
        """Tells what is installed."""

    def go(self) -> int:
        """0 when the bot knows the end or does not want to."""
        try:
            spec = self._claim()
            self._open_streams(spec)
        except Unwanted:
            return 0
        except Stopped:
            return UNREPORTED
        try:
            end = self._end_of(spec)
            self._report(end)
        except Unwanted:
            return 0
        except Stopped:
            self._print_rest(end)
            return UNREPORTED
        return 0

    # what the phases use

    def say(self, text: str) -> None:
        """A line of ours in the log."""
        self._log.say(text)

    def new_line(self) -> Line:
        """A connection of its own."""
        line = Line(self._loop, self._address)
        line.token = self._token
        return line

    def errand(self, build: Callable[[], Request]) -> Errand:
        """A request on the control connection, repeated until answered."""
        while not self._phase_told():
            self.breathe(LONGEST_TICK_S)
        return Errand(self._loop, self._control, self._contact, build)

    def errand_on(self, line: Line, build: Callable[[], Request]) -> Errand:
        """The same on another connection."""
        return Errand(self._loop, line, self._contact, build)

    def wait_for(self, errand: Errand) -> Errand:
        """Returns it when there is an answer. Raises Stopped, Unwanted."""
        try:
            self.breathe_until(lambda: errand.answer is not None)
        except (Stopped, Unwanted):
            errand.drop()
            raise
        return errand

    def ask(self, request: Request) -> Answer:
        """The answer. Raises Stopped, Unwanted."""
        answer = self.wait_for(self.errand(lambda: request)).answer
        assert answer is not None
        return answer

    def breathe(self, longest_s: float = 0.0) -> None:
        """Lets everything else move on. Raises Stopped, Unwanted."""
        self._loop.tick(longest_s)
        self._look_up()

    def breathe_until(self, done: Callable[[], bool], each: Callable[[], None] | None = None) -> None:
        """Until `done`. Raises Stopped, Unwanted."""
        while not done():
            self.breathe(LONGEST_TICK_S)
            if each is not None:
                each()

    # the story

    def _claim(self) -> Spec:
        boot_id = os.urandom(16).hex()
        machine = os.uname()
        body = protocol.encode(
            [
                ("boot_id", boot_id),
                ("agent", protocol.VERSION),
                ("landed.python", "%d.%d.%d" % sys.version_info[:3]),
                ("landed.kernel", machine.release),
                ("landed.arch", machine.machine),
                ("landed.cpus", os.cpu_count() or 0),
                ("landed.uid", os.getuid()),
                *(("landed.nvidia_driver", version) for version in _nvidia_driver()),
            ]
        )
        answer = self._claim_answer(Request("POST", protocol.PREFIX + "claim", body))
        if answer.status != 200:
            raise BadSpec("the bot refused the claim (%d): %s" % (answer.status, answer.text()))
        spec = Spec(answer.fields())
        self._token = self._control.token = spec.token
        return spec

    def _claim_answer(self, request: Request) -> Answer:
        """Unlike `ask` it takes an answer that says "cancel": such a run has an end to be reported."""
        errand = self.errand(lambda: request)
        while errand.answer is None:
            self._tick_or_give_up(time.monotonic() + (0 if self._loop.terminated else self._contact.left_s()))
        if self._contact.revoked:
            raise Unwanted
        return errand.answer

    def _open_streams(self, spec: Spec) -> None:
        around = self._around
        tokens = [token.encode("utf-8", "surrogateescape") for token in (spec.token, around.claim)]
        log = Stream("log", self._loop, self.new_line(), self._contact, Backlog(around.tmp, SPILL_MAX))
        metrics = Stream("metrics", self._loop, self.new_line(), self._contact, Backlog(around.tmp, SPILL_MAX))
        self._masker = Masker(tokens + spec.mask)
        self._masks = self._contact.masks
        self._log = Log(log, self._masker, spec.log_quota)
        self._log_stream, self._metrics = log, metrics
        # Not at once: a command of a few milliseconds should not wait for it.
        self._sampling: Timer | None = self._loop.after(0.2, self._start_sampling)

    def _start_sampling(self) -> None:
        from gpurun_agent import gpu, sample

        around = self._around
        program = gpu.find_program(around.image_env.get("PATH", ""))
        if program is not None:
            self._gpus = gpu.Gpus(self._loop, program, around.image_env)
        elif gpu.gpu_devices():
            self._notes.append("No GPU metrics: there is no nvidia-smi in this container.")
        self._sampler = sample.Sampler(self._gpus, around.work, cgroup=around.cgroup)
        self._sampling = self._loop.after(FIRST_SAMPLE_S, self._sample)

    def _sample(self) -> None:
        self._sampling = self._loop.after(SAMPLE_S, self._sample)
        self._metrics.append(self._sampler.line(self._phase))

    def _stop_sampling(self) -> None:
        """What is measured after the end belongs to nothing, and nothing waits for a measurement."""
        self._loop.forget(self._sampling)
        if self._gpus is not None:
            self._gpus.stop()
            self._notes += self._gpus.notes()

    def _end_of(self, spec: Spec) -> End:
        """Whatever happens becomes an end, except being unwanted."""
        try:
            return self._work(spec)
        except Ended as ended:
            return ended.end
        except Stopped as stopped:
            return stopped.end
        except ImportError as exc:
            name = exc.name or str(exc)
            return End(protocol.FAILED, protocol.MISSING_MODULE, "The image's Python has no module %s." % name)
        except Unwanted:
            raise
        except Exception as exc:  # our own fault; the bot must hear of it
            return End(protocol.LOST, protocol.AGENT, "%s: %s" % (type(exc).__name__, exc))

    def _work(self, spec: Spec) -> End:
        around = self._around
        around.make_folders()
        if spec.source:
            from gpurun_agent import source

            self._phase = "source"  # the bot noted it with the claim
            source.fetch(self, spec.source, around.work, around.tmp)
            if spec.git:
                source.fetch_git(self, around.work, around.tmp)
        if spec.workdir:
            self._find_workdir(spec)  # before the weights: a wrong name is told soon
        if spec.models:
            self._enter("weights")
            self._have_weights(spec)
        env = around.job_env(spec)
        self._enter("setup" if spec.setup else "running")
        if not spec.setup:
            self._tell_installed(env)  # while the bot notes the phase
        # The bot tries a lost attempt again unless it knows that user code has begun, which must not run twice.
        self.breathe_until(self._phase_told)
        if spec.max_duration_s:
            self._ends_at = time.monotonic() + spec.max_duration_s
        try:
            end = self._commands(spec, env)
        except Stopped as stopped:
            if not self._began or self._loop.terminated or stopped.end.reason not in _COMMAND_WAS_STOPPED:
                raise
            end = stopped.end
            self._collect_until = time.monotonic() + protocol.COLLECT_S
        self._ends_at = 0.0
        if spec.artifacts:
            self._collect(spec)
        return end

    def _have_weights(self, spec: Spec) -> None:
        models, hub = list(spec.models.values()), self._around.hub
        if spec.weights == protocol.MOUNTED:
            from gpurun_agent import mounted

            if mounted.use(self, models, hub):
                return
        from gpurun_agent import weights

        weights.fetch(self, models, hub)

    def _find_workdir(self, spec: Spec) -> None:
        from gpurun_agent import workdir

        self._folder = workdir.find(self._around.work, spec.workdir)

    def _commands(self, spec: Spec, env: dict[str, str]) -> End:
        end = End(protocol.PASSED, protocol.EXIT, "", 0)
        if spec.setup:
            end = self._setup(spec, env)
            self._tell_installed(env)
        if spec.run and end.result == protocol.PASSED:
            self._notes += ["In setup: " + end.detail] if end.detail else []
            end = self._command("running", spec.run, protocol.EXIT, env)
        return end

    def _setup(self, spec: Spec, env: dict[str, str]) -> End:
        def command() -> End:
            return self._command("setup", spec.setup, protocol.SETUP, env)

        if spec.layer is None:
            return command()
        from gpurun_agent import kept_setup

        return kept_setup.carry_out(self, spec, self._around, command)

    def _tell_installed(self, env: dict[str, str]) -> None:
        """What `run` finds, told while it goes on. Nothing of it is in the way of the job."""
        try:
            from gpurun_agent.installed import Installed
        except ImportError:
            return
        text = Installed(env).text()
        if text:
            body = self._masker.whole(text.encode("utf-8", "replace"))
            request = Request("PUT", protocol.PREFIX + "installed", body)
            self._installed = self.errand_on(self.new_line(), lambda: request)

    def _command(self, phase: str, text: str, reason: str, env: dict[str, str]) -> End:
        if self._phase != phase:
            self._enter(phase)
        self.breathe_until(lambda: self._out_of_disk or not self._contact.cancel)  # nothing starts while it asks why
        self.say("setup" if phase == "setup" else "run")
        self._began = True
        before = oom_kills(self._around.cgroup)
        command = Command(self._loop, self._log, text, folder=self._folder, env=env)
        try:
            self.breathe_until(command.poll)
        except Stopped as stopped:
            self._stop(command, stopped.grace_s)
            raise
        except BaseException:
            command.kill()
            raise
        code = command.finish()
        after = oom_kills(self._around.cgroup)
        killed = None if before is None or after is None else after - before
        detail = _describe(code, command.signal, killed, memory_limit_mib(self._around.cgroup) if killed else None)
        return End(protocol.PASSED if code == 0 else protocol.FAILED, reason, detail, code)

    def _stop(self, command: Command, grace_s: float) -> None:
        """TERM, some time, KILL. A shell ends at once, and what it started may be writing a checkpoint."""
        until = time.monotonic() + grace_s
        command.terminate()
        while not command.is_over() and time.monotonic() < until and not self._contact.revoked:
            longest_s = LONGEST_TICK_S if command.code is None else ORPHANS_TICK_S
            self._loop.tick(min(longest_s, until - time.monotonic()))
            if self._loop.terminated:
                until = min(until, self._terminated_at() + HURRY_GRACE_S)
        command.kill()
        while not command.poll():
            self._loop.tick()
        command.finish()

    def _collect(self, spec: Spec) -> None:
        """Whatever goes wrong here, the job has ended as it has ended."""
        try:
            from gpurun_agent import collect, tree
        except ImportError as exc:
            self._left_out = "No artifacts: the image's Python has no module %s." % exc.name
            return
        left_out, told = collect.LeftOut(), []
        try:
            self._enter("collecting")
            work = tree.Tree.of(self._around.work)  # the job may have put a link in its place
            collect.collect(self, spec, work.below(spec.workdir) if spec.workdir else work, left_out)
        except Stopped:
            told.append("Not all artifacts were collected in the time that was left.")
        except (tree.Outside, tree.NoFile):
            told.append("No artifacts: the folder %s leads out of the commit." % spec.workdir)
        except OSError as exc:
            told.append("No artifacts: the folder in which the job started %s." % tree.trouble(exc))
        told += left_out.sentences()
        for sentence in told:
            self.say("artifacts left out: %s" % sentence.replace("\n", " "))
        self._left_out = "\n".join(told)

    def _report(self, end: End) -> None:
        """Everything of the streams, then the end. Raises Stopped when the bot cannot be reached in time."""
        self._log.close()
        self._stop_sampling()
        self._metrics.close()
        until = time.monotonic() + max(REPORT_S, self._contact.left_s())
        while not (self._log_stream.done and self._metrics.done and self._phase_told() and self._installed_told()):
            self._tick_or_give_up(until)
        errand = Errand(self._loop, self._control, self._contact, lambda: self._finish_request(end))
        while errand.answer is None:
            self._tick_or_give_up(until)
        if errand.answer.status != 200 and not self._contact.revoked:
            raise BadSpec("the bot refused the end (%d): %s" % (errand.answer.status, errand.answer.text()))

    def _installed_told(self) -> bool:
        """Or given up: an end that is in a hurry does not wait for it."""
        return self._installed is None or self._installed.answer is not None or self._loop.terminated

    def _print_rest(self, end: End) -> None:
        """For whoever reads what the provider kept of our output."""
        from gpurun_agent.frames import Frames

        frames = Frames(self._around.attempt)
        frames.rest("metrics", self._metrics.kept, 0, FRAMES_METRICS)
        frames.rest("log", self._log_stream.kept, FRAMES_FIRST, FRAMES_LAST)
        frames.end(protocol.encode(self._finish_fields(end, MAX_DETAIL)))

    def _tick_or_give_up(self, until: float) -> None:
        self._loop.tick()
        if self._contact.revoked:
            raise Unwanted
        if self._loop.terminated:
            until = min(until, self._terminated_at() + HURRY_GRACE_S + REPORT_S)
        if time.monotonic() > until:
            raise Stopped(End(protocol.LOST, protocol.AGENT), 0)

    def _terminated_at(self) -> float:
        """Monotonic time of the first look after TERM."""
        self._hurry_since = self._hurry_since or time.monotonic()
        return self._hurry_since

    def _finish_request(self, end: End) -> Request:
        return Request("POST", protocol.PREFIX + "finish", protocol.encode(self._finish_fields(end)))

    def _finish_fields(self, end: End, max_detail: int | None = None) -> list[tuple[str, object]]:
        notes = [end.detail, *self._notes]
        notes += ["The log is incomplete: %s." % self._log_stream.lost] if self._log_stream.lost else []
        detail = self._masker.whole(" ".join(note for note in notes if note).encode("utf-8", "replace"))
        left_out = self._masker.whole(self._left_out.encode("utf-8", "replace"))
        fields: list[tuple[str, object]] = [
            ("result", end.result),
            ("reason", end.reason),
            ("detail", detail[:max_detail]),
            ("left_out", left_out[: MAX_LEFT_OUT if max_detail is None else MAX_LEFT_OUT // 3]),
            ("log_size", self._log_stream.end),
            ("metrics_size", self._metrics.end),
        ]
        if end.exit_code is not None:
            fields.append(("exit_code", end.exit_code))
        return fields

    # phases and reasons to stop

    def _enter(self, phase: str) -> None:
        """Tells the bot without waiting for it; only the latest phase matters."""
        self._phase = self._phase_wanted = phase
        self._look_up()

    def _phase_told(self) -> bool:
        self._tell_phase()
        return self._phase_errand is None or self._phase_errand.answer is not None

    def _tell_phase(self) -> None:
        """The control connection has one errand at a time; others wait in `errand` for this one."""
        if not self._phase_wanted or (self._phase_errand is not None and self._phase_errand.answer is None):
            return

        def build() -> Request:
            return Request("POST", protocol.PREFIX + "phase", protocol.encode([("phase", self._phase)]))

        self._phase_wanted = ""
        self._phase_errand = Errand(self._loop, self._control, self._contact, build)

    def _learn_masks(self) -> None:
        """Secrets that the bot has learned of since the claim, on a connection of their own."""
        errand = self._masks_errand
        if errand is None:
            if self._masks is not None and self._contact.masks > self._masks:
                self._masks = self._contact.masks
                self._masks_line = self.new_line()
                self._masks_errand = self.errand_on(self._masks_line, lambda: Request("GET", protocol.PREFIX + "masks"))
        elif errand.answer is not None:
            self._masks_errand = None
            self._masks_line.close()
            # Who refuses, or knows of fewer than another process of the bot, is not asked again for the same.
            self._masks = max(self._masks or 0, errand.answer.number("masks", 0))
            self._masker.add(value for name, value in errand.answer.fields() if name == "mask")

    def _look_up(self) -> None:
        self._tell_phase()
        self._learn_masks()
        if self._contact.revoked:
            raise Unwanted
        if self._loop.terminated:
            self._terminated_at()
            raise Stopped(self._end_of_instance(), HURRY_GRACE_S)
        if self._contact.left_s() <= 0:
            end = End(protocol.TIMEOUT, protocol.DEADLINE, "The instance reached its hard deadline.")
            raise Stopped(end, HURRY_GRACE_S)
        now = time.monotonic()
        near_s = SAME_MOMENT_S if self._contact.cancel else 0.0
        if self._ends_at and now >= self._ends_at - near_s:
            end = End(protocol.TIMEOUT, protocol.MAX_DURATION, "The job ran longer than its max_duration.")
            raise Stopped(end, CANCEL_GRACE_S)
        if self._contact.cancel and self._phase == "collecting":
            self._collect_until = self._collect_until or now + protocol.COLLECT_S
        elif self._contact.cancel and not self._out_of_disk:
            self._stop_as_told()
        if self._collect_until and now >= self._collect_until:
            raise Stopped(End(protocol.CANCELLED, protocol.ASKED), 0.0)

    def _stop_as_told(self) -> None:
        """The answer to a phase says why; without one it is a cancel. Returns while it is not known. Raises Stopped."""
        if self._why is None:
            fields = protocol.encode([("phase", self._phase)])
            self._why = self.errand_on(self.new_line(), lambda: Request("POST", protocol.PREFIX + "phase", fields))
            self._why_until = time.monotonic() + WHY_S
        if self._contact.out_of_disk:
            self._out_of_disk = True  # from now on it is no reason to stop
            raise Stopped(End(protocol.FAILED, protocol.DISK), 0.0)
        if self._why.answer is None and time.monotonic() < self._why_until:
            return
        self._why.drop()
        raise Stopped(End(protocol.CANCELLED, protocol.ASKED), CANCEL_GRACE_S)

    def _end_of_instance(self) -> End:
        if self._contact.left_s() <= 1:
            return End(protocol.TIMEOUT, protocol.DEADLINE, "The instance reached its hard deadline.")
        return End(protocol.CANCELLED, protocol.ASKED, "The instance was told to stop, and not by gpurun.")


def _nvidia_driver() -> list[str]:
    """At most one version."""
    try:
        with open("/proc/driver/nvidia/version", "rb") as file:
            words = file.readline().decode("ascii", "replace").split()
    except OSError:
        return []
    return [word for word in words if word[:1].isdigit() and "." in word][:1]


def _describe(code: int, number: int, killed: int | None, limit_mib: int | None) -> str:
    """What the exit code does not say. `number`: of the signal; `killed`: processes, for memory."""
    notes = []
    if number:
        notes.append("Ended by signal %d." % number)
    if killed:
        limit = " (limit %d MiB)" % limit_mib if limit_mib else ""
        notes.append("The kernel killed %d process(es) of the container for memory%s." % (killed, limit))
    elif killed == 0 and code == 128 + _signal.SIGKILL:
        notes.append("No process was killed for memory.")
    return " ".join(notes)
