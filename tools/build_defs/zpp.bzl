"""The project's rules: cc rules with our warnings, kernel families, models and trainers."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

_WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]

# Sources that live or die by vectorisation are optimised in every compilation mode: without it a
# test of a fastbuild tree takes minutes. No -ffast-math: sums keep their order, NaNs stay NaNs.
_SIMD_COPTS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-ffp-contract=fast",
]

# Instruction sets every SIMD source is compiled for; kernels/cpu/isa.h picks one at run time.
_ISAS = {
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}

def zpp_library(name, copts = [], **kwargs):
    """A cc_library with the project's warnings.

    Args:
      name: target name.
      copts: further compiler flags.
      **kwargs: as for cc_library.
    """
    cc_library(name = name, copts = _WARNINGS + copts, linkstatic = True, **kwargs)

def zpp_binary(name, copts = [], **kwargs):
    """A cc_binary with the project's warnings.

    Args:
      name: target name.
      copts: further compiler flags.
      **kwargs: as for cc_binary.
    """
    cc_binary(name = name, copts = _WARNINGS + copts, **kwargs)

def zpp_test(name, srcs = None, deps = [], copts = [], size = "small", **kwargs):
    """A GoogleTest program; main() comes with it.

    Args:
      name: target name, by convention <unit>_test.
      srcs: sources, default [name + ".cc"].
      deps: what it tests.
      copts: further compiler flags.
      size: Bazel's test size.
      **kwargs: as for cc_test.
    """
    cc_test(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = _WARNINGS + copts,
        size = size,
        deps = deps + ["@gtest//:gtest_main"],
        **kwargs
    )

def zpp_kernel(name, deps = [], cpu_deps = [], simd = True, srcs = [], hdrs = [], **kwargs):
    """A kernel family from the files that its name stands for.

    name.h, name.cc                  declarations; argument checks and dispatch
    cpu/name.cc                      CPU launch
    cpu/name_simd.h, .cc             with simd: inner loops, compiled once per instruction set with
                                     -DZPP_ISA=<set>

    Args:
      name: the family.
      deps: dependencies of all files.
      cpu_deps: dependencies of cpu/name.cc only.
      simd: whether the family has cpu/name_simd.{h,cc}.
      srcs: further sources beside name.cc and cpu/name.cc.
      hdrs: further headers.
      **kwargs: as for cc_library.
    """
    isa_libs = []
    if simd:
        zpp_library(
            name = name + "_simd_hdr",
            hdrs = ["cpu/{}_simd.h".format(name)],
            visibility = ["//visibility:private"],
            deps = deps,
        )
        for isa, flags in _ISAS.items():
            zpp_library(
                name = "{}_simd_{}".format(name, isa),
                srcs = ["cpu/{}_simd.cc".format(name)],
                copts = _SIMD_COPTS + flags,
                local_defines = ["ZPP_ISA=" + isa],
                tags = ["simd_" + isa],
                visibility = ["//visibility:private"],
                deps = deps + [":{}_simd_hdr".format(name)],
            )
            isa_libs.append(":{}_simd_{}".format(name, isa))
        isa_libs.append(":{}_simd_hdr".format(name))
    zpp_library(
        name = name,
        srcs = [name + ".cc", "cpu/{}.cc".format(name)] + srcs,
        hdrs = [name + ".h"] + hdrs,
        deps = deps + cpu_deps + isa_libs,
        **kwargs
    )

def simd_archives(name, isa):
    """All SIMD libraries of this package for one instruction set, as a filegroup.

    Call it after the last zpp_kernel of the BUILD file.

    Args:
      name: target name.
      isa: key of the instruction set.
    """
    native.filegroup(
        name = name,
        srcs = [
            ":" + rule["name"]
            for rule in native.existing_rules().values()
            if "simd_" + isa in rule["tags"]
        ],
        visibility = ["//tests:__subpackages__"],
    )

def zpp_model(name, srcs = None, deps = [], **kwargs):
    """A model that registers itself. alwayslink keeps its registration in the binary.

    Args:
      name: target name.
      srcs: sources, default [name + ".cc"].
      deps: what the model is made of.
      **kwargs: as for cc_library.
    """
    zpp_library(
        name = name,
        srcs = srcs or [name + ".cc"],
        alwayslink = True,
        deps = deps,
        **kwargs
    )

def zpp_trainer(name, models, **kwargs):
    """A training program that knows the given models.

    Args:
      name: target name.
      models: zpp_model targets.
      **kwargs: as for cc_binary.
    """
    zpp_binary(
        name = name,
        deps = ["//tools:train_main"] + models,
        **kwargs
    )
