#include "model/model.h"

namespace zpp {

Value Model::run_loss(Tape& tape, const Batch& batch) {
  tape.hooks().before_forward(root_);
  tape.record_marker("root begin", [this, &tape] { tape.hooks().after_backward(root_); });
  Value value = loss(tape, batch);
  tape.record_marker("root end", [this, &tape] { tape.hooks().before_backward(root_); });
  tape.hooks().after_forward(root_);
  return value;
}

Value Model::run_logits(Tape& tape, const Batch& batch) {
  tape.hooks().before_forward(root_);
  Value value = logits(tape, batch);
  tape.hooks().after_forward(root_);
  return value;
}

}  // namespace zpp
