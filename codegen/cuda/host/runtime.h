// What the parts of the run-time share: where a thread stands, and what a run knows of it.
#pragma once
#include <cstddef>
#include <cstdint>

// What kernels call; all else stays inside.
#define TE_EXPORT extern "C" __attribute__((visibility("default")))

struct te_index3 { unsigned x, y, z; };
struct te_place { te_index3 thread, block, block_size, grid_size; };

// A grid to run: blocks and threads along three axes; whether threads never wait, so that each is a plain call; the order of the
// threads of a block (0 forward, 1 backward, else the seed of a permutation); whether asynchronous copies arrive when they are waited
// for (`late`) or when they are asked for; whether accesses are checked; where declared shared memory lies; and
// how many bytes of it the launch asks for beside, which lie in `te_host_arena`.
struct te_grid {
  unsigned blocks[3], threads[3];
  int alone;
  unsigned order;
  int late, checked;
  char *shared, *shared_end;
  unsigned asked;
};

extern "C" char *te_host_arena;
// Reports an address at which a GPU would fault.
TE_EXPORT void te_host_misaligned(const void *address, int size, int line);

namespace te {

// Serial numbers that tell launches, blocks, intervals between barriers and, for each warp, between barriers of it apart.
struct Clock {
  uint32_t launch, block, interval, warp;
};

struct Thread {
  unsigned number;  // within its block
  Clock clock;
  char *stack, *stack_end;  // where its own variables are
  uint32_t handed;          // how often it has handed over to the asynchronous proxy what it wrote
};

// The thread that runs.
Thread here();
// How often a thread of this block has done so.
uint32_t handed(unsigned thread);
// Whether an address is the run-time's own.
bool ours(const void *address);
// Notes what went wrong; the first remark counts. `fail` leaves the thread for good.
void complain(const char *format, ...);
[[noreturn]] void fail();

// The checker (checker.cpp): `checking` says whether it is on for the launch that runs.
extern bool checking;
// Whether a kernel has refused an index since arguments were named: the call is an error then, and what it leaves unwritten is none.
extern bool refused;
void check_block(const te_grid &grid);
// A read by tensor cores (`kProxy`) is one of a whole warpgroup, past the order of what threads read and write.
enum Kind { kRead, kWrite, kAtomic, kBegin, kFinish, kProxy };
void touch(const void *address, std::size_t bytes, Kind kind, void *from);
// Bytes of shared memory that a product under way reads, or no longer.
void hold(const void *address, std::size_t bytes, bool held);

}  // namespace te
