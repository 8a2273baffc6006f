#include "core/stream.h"

#include <fmt/format.h>

namespace zpp {

void Event::synchronize(Millis timeout) const {
  if (state_ && !state_->wait(timeout)) {
    throw Error(Code::kTimeout,
                fmt::format("an event did not complete within {} ms", timeout.count()));
  }
}

}  // namespace zpp
