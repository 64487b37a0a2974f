// The run-time of CUDA kernels on a CPU: the threads of a block are fibers, blocks run one after the other. A fiber runs until it
// waits; barriers, exchanges within a warp and products of a warpgroup are meetings, and who cannot meet is reported with its line.
#include "fibers.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <vector>

namespace {

constexpr std::size_t kStack = 256 << 10;
constexpr std::size_t kShared = 227 << 10;  // that a block may ask for, on the devices that have most

std::vector<char *> stacks;
void (*entry)(void **) = nullptr;
void **arguments = nullptr;
char report[512];
te::Clock now;
std::vector<uint32_t> warps;  // the interval between barriers that each warp is in
bool asked = false, answered = false;  // at the barrier that threads wait at, and at the last one
uint32_t serial = 0;

}  // namespace

namespace te {

std::vector<Fiber> fibers;
Fiber *current = nullptr;
te_grid grid;
std::vector<std::vector<Product>> products;

void complain(const char *format, ...) {
  if (report[0]) return;
  va_list rest;
  va_start(rest, format);
  std::vsnprintf(report, sizeof report, format, rest);
  va_end(rest);
}

Thread here() {
  Clock clock = now;
  clock.warp = warps[current->number / 32];
  return {current->number, clock, current->stack, current->stack + kStack, current->handed};
}

uint32_t handed(unsigned thread) { return thread < fibers.size() ? fibers[thread].handed : 0; }

}  // namespace te

using namespace te;

extern "C" {
__attribute__((visibility("default"))) te_place *te_here = nullptr;
__attribute__((visibility("default"))) char *te_host_arena = nullptr;
}

bool te::ours(const void *address) {
  const char *at = (const char *)address;
  if (at >= (const char *)&te_here && at < (const char *)(&te_here + 1)) return true;
  if (at >= (const char *)&te_host_arena && at < (const char *)(&te_host_arena + 1)) return true;
  return at >= (const char *)fibers.data() && at < (const char *)(fibers.data() + fibers.size());
}

#if defined(__x86_64__)
TE_EXPORT void te_switch(void **save, void *load);
asm(R"(
.text
.globl te_switch
.type te_switch, @function
te_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
namespace {
void *scheduler_sp = nullptr;
void to_scheduler() { te_switch(&current->sp, scheduler_sp); }
void to_fiber(Fiber &f) { te_switch(&scheduler_sp, f.sp); }
void body() {
  entry(arguments);
  current->state = kLeft;
  to_scheduler();
}
void prepare(Fiber &f) {
  uintptr_t top = (uintptr_t)(f.stack + kStack) & ~uintptr_t(15);
  void **sp = (void **)(top - 8);  // a function is entered with the stack at 8 modulo 16
  *--sp = (void *)&body;
  for (int k = 0; k < 6; ++k) *--sp = nullptr;
  f.sp = sp;
}
}  // namespace
#else
namespace {
ucontext_t scheduler;
void to_scheduler() { swapcontext(&current->context, &scheduler); }
void to_fiber(Fiber &f) { swapcontext(&scheduler, &f.context); }
void body() {
  entry(arguments);
  current->state = kLeft;
  to_scheduler();
}
void prepare(Fiber &f) {
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = kStack;
  f.context.uc_link = nullptr;
  makecontext(&f.context, body, 0);
}
}  // namespace
#endif

void te::wait_as(State state, int line) {
  current->state = state;
  current->line = line;
  to_scheduler();
}

void te::fail() {
  current->state = kLeft;
  for (;;) to_scheduler();
}

TE_EXPORT void te_host_barrier(int line) {
  wait_as(kBarrier, line);
}

// A barrier at which every thread learns whether one of them said yes: there is no next before all have gone on.
TE_EXPORT int te_host_vote(int value, int line) {
  asked |= value != 0;
  te_host_barrier(line);
  return answered;
}

namespace {
void meet_at(int line, unsigned mask) {
  current->mask = mask;
  wait_as(kWarp, line);
}
}  // namespace

TE_EXPORT uint64_t te_host_shuffle(unsigned mask, uint64_t value, int lane, int line) {
  current->value = value;
  current->lane = lane;
  current->combine = nullptr;
  current->orders = false;
  meet_at(line, mask);
  return current->result;
}

// A barrier of the warp: memory is ordered between its threads, which an exchange of values does not do.
TE_EXPORT void te_host_warp_barrier(int line) {
  current->lane = (int)(current->number % 32);
  current->combine = nullptr;
  current->orders = true;
  meet_at(line, 0xffffffffu);
}

// An operation of all lanes together: once they are here `combine` gets the operands of each, in which it leaves the results.
TE_EXPORT void te_host_collective(void (*combine)(void **), void *operands, int line) {
  current->lane = (int)(current->number % 32);
  current->combine = combine;
  current->operands = operands;
  current->orders = false;
  meet_at(line, 0xffffffffu);
}

TE_EXPORT void te_host_misaligned(const void *, int size, int line) {
  complain("line %d: an access of %d bytes at an address that is no multiple of them", line, size);
  te::fail();
}

TE_EXPORT void te_host_touch(const void *address, int bytes, int kind) {
  if (te::checking) te::touch(address, (std::size_t)bytes, (te::Kind)kind, __builtin_return_address(0));
}

TE_EXPORT uint64_t te_host_exchange(void *address, int size, uint64_t compare, uint64_t value) {
  if (te::checking) te::touch(address, (std::size_t)size, te::kAtomic, __builtin_return_address(0));
  uint64_t old = 0;
  std::memcpy(&old, address, size);
  if (old == compare) std::memcpy(address, &value, size);
  return old;
}

namespace {

void run(Fiber &f) {
  current = &f;
  te_here = &f.place;
  f.state = kReady;
  to_fiber(f);
}

// Lanes of one warp that wait at the same exchange and whose masks name just each other get their values.
bool meet(unsigned first, unsigned count) {
  bool any = false;
  for (unsigned k = 0; k < count; ++k) {
    Fiber &f = fibers[first + k];
    if (f.state != kWarp) continue;
    bool all = (f.mask >> k) & 1u;
    if (!all) {
      complain("line %d: thread %u is not in the mask 0x%08x of its own exchange", f.line, f.number, f.mask);
      return false;
    }
    for (unsigned j = 0; j < 32 && all; ++j) {
      if (!((f.mask >> j) & 1u)) continue;
      if (j >= count || fibers[first + j].state == kLeft) {
        complain("line %d: lane %u of the mask 0x%08x is not there", f.line, j, f.mask);
        return false;
      }
      const Fiber &g = fibers[first + j];
      all = g.state == kWarp && g.line == f.line && g.mask == f.mask;
    }
    if (!all) continue;
    if (f.combine) {
      void *operands[32];
      for (unsigned j = 0; j < count; ++j) operands[j] = fibers[first + j].operands;
      const bool checking = te::checking;
      te::checking = false;  // it looks into the lanes' own variables
      f.combine(operands);
      te::checking = checking;
    }
    if (f.orders) warps[first / 32] = ++serial;
    for (unsigned j = 0; j < count; ++j) {
      if (!((f.mask >> j) & 1u)) continue;
      Fiber &g = fibers[first + j];
      unsigned from = (unsigned)g.lane;
      if (from >= count || !((f.mask >> from) & 1u)) {
        complain("line %d: lane %u asks lane %u, which is not in the mask 0x%08x", g.line, j, from, f.mask);
        return false;
      }
      g.result = fibers[first + from].value;
    }
    for (unsigned j = 0; j < count; ++j)
      if ((f.mask >> j) & 1u) fibers[first + j].state = kReady;
    any = true;
  }
  return any;
}

bool run_block(unsigned threads, const std::vector<unsigned> &order) {
  for (;;) {
    bool moved = false;
    for (unsigned k : order) {
      if (fibers[k].state == kReady) {
        run(fibers[k]);
        moved = true;
        if (report[0]) return false;
      }
    }
    for (unsigned first = 0; first < threads; first += 32) {
      moved |= meet(first, threads - first < 32 ? threads - first : 32);
      if (report[0]) return false;
    }
    for (unsigned first = 0; first < threads; first += kGroup) {
      moved |= multiply(first, std::min(threads - first, kGroup));
      if (report[0]) return false;
    }
    if (moved) continue;
    unsigned waiting = 0, left = 0;
    int line = 0;
    for (unsigned k = 0; k < threads; ++k) {
      if (fibers[k].state == kLeft) ++left;
      if (fibers[k].state == kBarrier) {
        if (waiting && fibers[k].line != line) {
          complain("threads of one block wait at different barriers: lines %d and %d", line, fibers[k].line);
          return false;
        }
        line = fibers[k].line;
        ++waiting;
      }
    }
    if (left == threads) return true;
    if (waiting + left != threads) {
      for (unsigned k = 0; k < threads; ++k)
        if (fibers[k].state == kWarp) complain("line %d: an exchange within a warp that not all lanes of its mask reach", fibers[k].line);
      for (unsigned k = 0; k < threads; ++k)
        if (fibers[k].state == kProduct) complain("line %d: a product that not all threads of its warpgroup reach", fibers[k].line);
      return false;
    }
    // Threads that left no longer count at a barrier (compute capability 7 and later).
    for (unsigned k = 0; k < threads; ++k)
      if (fibers[k].state == kBarrier) fibers[k].state = kReady;
    answered = asked;
    asked = false;
    now.interval = ++serial;
  }
}

}  // namespace

// Runs a grid. Gives null, or what went wrong.
TE_EXPORT const char *te_launch(void (*enter)(void **), void **given, const te_grid *wanted) {
  report[0] = 0;
  entry = enter;
  arguments = given;
  grid = *wanted;
  const unsigned *t = grid.threads, *b = grid.blocks;
  // CUDA C++ Programming Guide, technical specifications per compute capability.
  if (t[0] > 1024 || t[1] > 1024 || t[2] > 64 || (std::size_t)t[0] * t[1] * t[2] > 1024) return "more threads than a block has";
  if (b[0] > 0x7fffffffu || b[1] > 65535 || b[2] > 65535) return "more blocks than a grid has";
  const unsigned threads = t[0] * t[1] * t[2];
  const std::size_t blocks = (std::size_t)b[0] * b[1] * b[2];
  std::vector<unsigned> sequence(threads);
  for (unsigned k = 0; k < threads; ++k) sequence[k] = grid.order == 1 ? threads - 1 - k : k;
  if (grid.order > 1) {
    uint64_t state = grid.order;
    for (unsigned k = threads; k > 1; --k) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      unsigned j = (unsigned)((state >> 33) % k);
      unsigned kept = sequence[k - 1];
      sequence[k - 1] = sequence[j];
      sequence[j] = kept;
    }
  }
  fibers.assign(threads, Fiber());
  warps.assign(threads / 32 + 1, 0);
  products.assign(threads / kGroup + 1, {});
  for (unsigned k = 0; k < threads && !grid.alone; ++k) {
    if (k >= stacks.size()) {
      void *memory = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) return "no memory for the stacks of a block";
      stacks.push_back((char *)memory);
    }
    fibers[k].stack = stacks[k];
  }
  if (grid.asked && !te_host_arena) {
    void *memory = mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return "no memory for the shared memory of a block";
    te_host_arena = (char *)memory;
  }
  if (grid.asked > kShared) return "more shared memory than a block has";
  now.launch = ++serial;
  te::checking = grid.checked != 0;
  if (te::checking) te::check_block(grid);
  for (std::size_t n = 0; n < blocks; ++n) {
    const std::size_t block = grid.order == 1 ? blocks - 1 - n : n;
    if (grid.shared != grid.shared_end) std::memset(grid.shared, 0xff, (std::size_t)(grid.shared_end - grid.shared));
    if (grid.asked) std::memset(te_host_arena, 0xff, grid.asked);
    now.block = ++serial;
    now.interval = ++serial;
    for (unsigned k = 0; k < threads; ++k) {
      Fiber &f = fibers[k];
      f.number = k;
      f.place.thread = {k % t[0], k / t[0] % t[1], k / (t[0] * t[1])};
      f.place.block = {unsigned(block % b[0]), unsigned(block / b[0] % b[1]), unsigned(block / b[0] / b[1])};
      f.place.block_size = {t[0], t[1], t[2]};
      f.place.grid_size = {b[0], b[1], b[2]};
      f.state = kReady;
      f.group = 0;
      f.copies.clear();
      f.entered = false;
      f.batches = f.waited = 0;
      if (!grid.alone) prepare(f);
    }
    if (grid.alone) {
      for (unsigned k : sequence) {
        current = &fibers[k];
        te_here = &fibers[k].place;
        entry(arguments);
      }
    } else if (!run_block(threads, sequence)) {
      break;
    }
    for (const Fiber &f : fibers) {
      if (!f.copies.empty()) complain("thread %u leaves while copies of its own are under way", f.number);
      if (f.waited != f.batches || !products[f.number / kGroup].empty())
        complain("thread %u leaves while products of its warpgroup are under way", f.number);
    }
    if (report[0]) break;
  }
  te::checking = false;
  te_here = nullptr;
  return report[0] ? report : nullptr;
}
