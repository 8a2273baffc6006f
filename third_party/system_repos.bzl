"""Repositories that point at libraries installed by Debian -dev packages.

Only the sub-directory of the library itself is linked into the repository.
Never point a repository's `includes` at /usr/include as a whole: -isystem
/usr/include breaks libstdc++'s #include_next.
"""

def _system_repo_impl(rctx):
    missing = []
    for dest, src in rctx.attr.links.items():
        path = rctx.path(src)
        if not path.exists:
            missing.append(src)
        else:
            rctx.symlink(path, dest)
    if missing:
        fail("@{}: {} not found; apt-get install {}".format(
            rctx.name,
            ", ".join(missing),
            rctx.attr.package,
        ))
    rctx.symlink(rctx.attr.build_file, "BUILD")

system_repo = repository_rule(
    implementation = _system_repo_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "links": attr.string_dict(
            mandatory = True,
            doc = "path in the repository -> absolute path on this machine",
        ),
        "package": attr.string(mandatory = True, doc = "Debian package"),
    },
    local = True,
)

_INC = "/usr/include/"
_LIB = "/usr/lib/x86_64-linux-gnu/"

def system_repos():
    """Declares every system library's repository."""
    system_repo(
        name = "eigen",
        build_file = "//third_party:eigen.BUILD",
        links = {"include": _INC + "eigen3"},
        package = "libeigen3-dev",
    )
    system_repo(
        name = "nlohmann_json",
        build_file = "//third_party:nlohmann_json.BUILD",
        links = {"include/nlohmann": _INC + "nlohmann"},
        package = "nlohmann-json3-dev",
    )
    system_repo(
        name = "cli11",
        build_file = "//third_party:cli11.BUILD",
        links = {"include/CLI": _INC + "CLI"},
        package = "libcli11-dev",
    )
    system_repo(
        name = "fmt",
        build_file = "//third_party:fmt.BUILD",
        links = {
            "include/fmt": _INC + "fmt",
            "lib/libfmt.so": _LIB + "libfmt.so",
        },
        package = "libfmt-dev",
    )
    system_repo(
        name = "spdlog",
        build_file = "//third_party:spdlog.BUILD",
        links = {
            "include/spdlog": _INC + "spdlog",
            "lib/libspdlog.so": _LIB + "libspdlog.so",
        },
        package = "libspdlog-dev",
    )
    system_repo(
        name = "onednn",
        build_file = "//third_party:onednn.BUILD",
        links = {
            "include/oneapi": _INC + "oneapi",
            "lib/libdnnl.so": _LIB + "libdnnl.so",
        },
        package = "libdnnl-dev",
    )
    system_repo(
        name = "ucx",
        build_file = "//third_party:ucx.BUILD",
        links = {
            "include/ucp": _INC + "ucp",
            "include/ucs": _INC + "ucs",
            "lib/libucp.so": _LIB + "libucp.so",
            "lib/libucs.so": _LIB + "libucs.so",
        },
        package = "libucx-dev",
    )
    system_repo(
        name = "gtest",
        build_file = "//third_party:gtest.BUILD",
        links = {
            "include/gmock": _INC + "gmock",
            "include/gtest": _INC + "gtest",
            "lib/libgmock.a": _LIB + "libgmock.a",
            "lib/libgtest.a": _LIB + "libgtest.a",
            "lib/libgtest_main.a": _LIB + "libgtest_main.a",
        },
        package = "libgtest-dev libgmock-dev",
    )
