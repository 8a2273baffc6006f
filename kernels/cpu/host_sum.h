// CPU launch of the host reductions.
#pragma once

#include "kernels/host_sum.h"

namespace zpp::kernels::cpu {

void host_reduce(Isa isa, const HostReduce& args);

}  // namespace zpp::kernels::cpu
