"""What is known of the place a command would run in. Facts beyond the defaults only tighten, unless the operator says otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """The setting a verdict assumes.

    Attributes:
        workspace: The project's folder; commands may work freely inside it.
        home: The home of the user that runs the command.
        scratch: Folders whose content nobody misses.
        user: Name of that user.
        uid: Its number; 0 makes a write outside the workspace a system write.
        file_system: Whether paths may be looked up on this machine (symbolic links). Such a verdict is never cached.
        docker_socket: The container can reach a docker daemon of its host: starting containers then is a way out.
        host_mounts: Folders that belong to the host: writes and deletes there are never allowed without a person.
        egress: Hosts that the sandbox lets through. Alone it changes nothing; with ``loosen`` fetching from them is allowed.
        loosen: The operator's word that ``egress`` may lift an ask.
        trusted_project: Whether the project's own code may run; False in a checkout nobody has looked at yet.
    """

    workspace: str = "/workspace"
    home: str = "/home/agent"
    scratch: tuple[str, ...] = ("/tmp",)  # noqa: S108  the setting's private scratch, nothing is written here
    user: str = "agent"
    uid: int = 1000
    file_system: bool = False
    docker_socket: bool = False
    host_mounts: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    loosen: bool = False
    trusted_project: bool = True
