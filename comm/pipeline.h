// The order in which an algorithm of several levels works on its chunks.
#pragma once

#include <cstdint>

namespace zpp {

/// Chunk c is posted at level 0 of the chain of stages at tick c, finished there and posted at the
/// next stage one tick later, and so on: two chunks are on their way at every stage.
template <class Post, class Finish>
void pipeline(int64_t chunks, int stages, const Post& post, const Finish& finish) {
  for (int64_t tick = 0; tick < chunks + stages; ++tick) {
    for (int stage = 0; stage <= stages; ++stage) {
      const int64_t chunk = tick - stage;
      if (chunk < 0 || chunk >= chunks) continue;
      if (stage > 0) finish(stage - 1, chunk);
      if (stage < stages) post(stage, chunk);
    }
  }
}

}  // namespace zpp
