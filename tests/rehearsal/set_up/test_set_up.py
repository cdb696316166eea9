"""The set-up makes an artifact again when its sources have changed."""

from __future__ import annotations

from pathlib import Path

from rehearsal.set_up.images import lock_digest, overlays_on, recipe_digest


def test_an_overlay_on_the_base_image_is_found() -> None:
    mountinfo = (
        "22 27 0:21 / /proc rw - proc proc rw\n"
        "50 27 0:50 / /run/a rw - overlay vr-a rw,lowerdir=/home/base,upperdir=/u,workdir=/w\n"
        "51 27 0:51 / /run/b rw shared:1 - overlay b rw,lowerdir+=/x,lowerdir+=/home/base\n"
        "52 27 0:52 / /run/c rw - overlay c rw,lowerdir=/home/base2:/y,upperdir=/home/base\n"
    )
    assert overlays_on(Path("/home/base"), mountinfo) == ["/run/a", "/run/b"]


def test_another_host_configuration_is_another_base_image() -> None:
    assert recipe_digest("one") == recipe_digest("one") != recipe_digest("other")


def test_the_lock_digest_is_what_the_machines_compute_by_sha256sum() -> None:
    assert lock_digest(b"ray==2.60.0\n") == (
        "3d9ecd092396fc6ba02ac790e5cdde22ca3d3aeca0d985599444ea661c99cd76"
    )
