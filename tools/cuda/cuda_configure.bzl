"""Repository rule that finds the CUDA toolkit of this machine.

Without one CUDA_AVAILABLE is False and every package still loads.
"""

def _find(rctx):
    for var in ["CUDA_HOME", "CUDA_PATH"]:
        root = rctx.os.environ.get(var, "")
        if root:
            return root if rctx.path(root + "/bin/nvcc").exists else None
    if rctx.path("/usr/local/cuda/bin/nvcc").exists:
        return "/usr/local/cuda"
    nvcc = rctx.which("nvcc")
    return str(nvcc.dirname.dirname) if nvcc else None

def _version(rctx, root):
    out = rctx.execute([root + "/bin/nvcc", "--version"]).stdout
    for word in out.replace(",", " ").replace("\n", " ").split(" "):
        if word.startswith("V") and word.count(".") == 2:
            return word[1:]
    return ""

def _cuda_configure_impl(rctx):
    root = _find(rctx)
    rctx.file("BUILD", "")
    rctx.file("defs.bzl", "\n".join([
        "CUDA_AVAILABLE = " + repr(root != None),
        "CUDA_ROOT = " + repr(root or ""),
        "CUDA_VERSION = " + repr(_version(rctx, root) if root else ""),
    ]) + "\n")

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME", "CUDA_PATH", "PATH"],
    local = True,
)
