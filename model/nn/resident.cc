#include "model/nn/resident.h"

namespace zpp {

ResidentHooks::ResidentHooks(ParameterTable& table, Runtime& runtime, int64_t alignment) {
  for (const auto& unit : table.units()) {
    unit->layout(alignment);
    weights_.push_back(runtime.tensor({unit->flat_numel()}, unit->dtype()));
    grads_.push_back(runtime.tensor({unit->flat_numel()}, unit->grad_dtype()));
    unit->bind_weights(weights_.back().view());
    unit->bind_grads(grads_.back().view());
    unit->restart_grads();
  }
}

}  // namespace zpp
