/* Collectives of an MPI library between the ranks that mpirun starts. tools/bench/comm_peers
 * compiles and runs it: comm_mpi SECONDS BYTES...
 *
 * Prints lines "OPERATION BYTES SECONDS": the best time of a collective on a buffer of that many
 * bytes of f32, the slowest rank's, over SECONDS of runs. In place where MPI can, as zpp-bench. */
#define _POSIX_C_SOURCE 200112L
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { kAllGather, kReduceScatter, kAllReduce, kAllToAll, kOperations };
static const char* const kNames[] = {"all-gather", "reduce-scatter", "all-reduce", "all-to-all"};

static float* allocate(size_t count) {
  const size_t huge = (size_t)2 << 20;
  const size_t bytes = (count * sizeof(float) + huge - 1) / huge * huge;
  void* memory = NULL;
  if (posix_memalign(&memory, huge, bytes) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  madvise(memory, bytes, MADV_HUGEPAGE); /* as zpp's pool does; only a hint */
  float* const numbers = memory;
  for (size_t i = 0; i < count; ++i) numbers[i] = 1.0f;
  return numbers;
}

static void collective(int operation, float* a, float* b, int part, int ranks) {
  switch (operation) {
    case kAllGather:
      MPI_Allgather(MPI_IN_PLACE, part, MPI_FLOAT, a, part, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter_block(MPI_IN_PLACE, a, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case kAllReduce:
      MPI_Allreduce(MPI_IN_PLACE, a, part * ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    default:
      MPI_Alltoall(a, part, MPI_FLOAT, b, part, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

static double timed(int operation, float* a, float* b, int part, int ranks) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  collective(operation, a, b, part, ranks);
  double seconds = MPI_Wtime() - begin;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

static void measure(int operation, size_t bytes, double limit, int rank, int ranks) {
  const int part = (int)(bytes / sizeof(float) / (size_t)ranks);
  const size_t count = (size_t)part * (size_t)ranks;
  float *const a = allocate(count), *const b = allocate(count);
  double best = timed(operation, a, b, part, ranks);
  int runs = (int)(limit / best); /* alike on all ranks, as the time is */
  if (runs < 5) runs = 5;
  if (runs > 1000) runs = 1000;
  while (runs-- > 0) {
    const double seconds = timed(operation, a, b, part, ranks);
    if (seconds < best) best = seconds;
  }
  if (rank == 0) printf("%s %zu %.9f\n", kNames[operation], bytes, best);
  free(a);
  free(b);
}

int main(int argc, char** argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int at = 2; at < argc; ++at) {
    for (int operation = 0; operation < kOperations; ++operation) {
      measure(operation, strtoull(argv[at], NULL, 10), atof(argv[1]), rank, ranks);
    }
  }
  return MPI_Finalize();
}
