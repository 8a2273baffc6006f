"""Who may depend on a room: the rooms above it, the room itself, and the tests.

        tools
          |
       parallel
       /      \\
    model     comm
       \\      /
       kernels
          |
         core
"""

def _packages(rooms):
    return ["//{}:__subpackages__".format(room) for room in rooms + ["tests"]]

TOOLS_VISIBILITY = _packages(["tools"])
PARALLEL_VISIBILITY = _packages(["parallel", "tools"])
MODEL_VISIBILITY = _packages(["model", "parallel", "tools"])
COMM_VISIBILITY = _packages(["comm", "parallel", "tools"])
KERNELS_VISIBILITY = _packages(["kernels", "model", "comm", "parallel", "tools"])
CORE_VISIBILITY = _packages(["core", "kernels", "model", "comm", "parallel", "tools"])
