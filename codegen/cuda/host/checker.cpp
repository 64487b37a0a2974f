// The checker of CUDA kernels on a CPU. Kernels are compiled with the compiler's instrumentation for races between threads and for
// undefined behavior, but linked with neither of its run-times: what is called at each access is here, and knows CUDA's order
// of things in place of a CPU's.
//
// Every element of an argument and every byte of shared memory has a cell that says who wrote and who read it last. Two threads of a
// block that meet in a cell, one of them writing, must have a barrier between them (of the warp, where both are of one); two blocks
// of a launch must not meet so at all, unless both by atomics. An access must lie in an argument, in shared memory or on the thread's
// own stack, be aligned, read what has been written and write what is no input; what an asynchronous copy is bringing may not be
// touched before the wait for it. What tensor cores read by themselves must have been handed over to them by who wrote it (a fence of the
// proxies, PTX ISA, Memory Consistency Model: Proxies), and may not be written before the wait for their product.
#include "runtime.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace te {

bool checking = false;
bool refused = false;

namespace {

constexpr uint32_t kMany = 0xffffffffu, kOfWarp = 0x80000000u;

// Who did it last and when: a thread, several of one warp (`kOfWarp` with its number), or several of a block.
struct Access {
  Clock clock;
  uint32_t thread;
  bool of_warp(uint32_t warp) const {
    if (thread == kMany) return false;
    return (thread & kOfWarp ? thread & ~kOfWarp : thread / 32) == warp;
  }
};

struct Cell {
  Access wrote, read;
  uint32_t filled;   // not 0: holds a value; in shared memory the block whose value it is
  uint32_t pending;  // the thread whose asynchronous copy will fill it, plus 1
  bool atomic;       // the last write was one
  uint16_t held;     // products under way that read it
  uint32_t handed;   // how often its writer had handed over what it wrote
};

struct Region {
  std::string name;
  char *start, *end;
  std::size_t grain;  // bytes of a cell
  bool writable, shared;
  Cell *cells;
  std::size_t mapped;
};

std::vector<Region> regions;
std::size_t last = 0;

void add(const char *name, char *start, std::size_t bytes, std::size_t grain, bool filled, bool writable, bool shared) {
  std::size_t count = bytes / grain, size = (count + 1) * sizeof(Cell);
  void *cells = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (cells == MAP_FAILED) std::abort();
  regions.push_back({name, start, start + bytes, grain, writable, shared, (Cell *)cells, size});
  for (std::size_t k = 0; filled && k < count; ++k) regions.back().cells[k].filled = 1;
}

// The shared memory of the blocks of a launch, which in the arena ends where another launch may have more.
void check_shared(char *start, char *end) {
  for (std::size_t k = 0; k < regions.size(); ++k) {
    if (!regions[k].shared || regions[k].start != start) continue;
    if (regions[k].end == end) return;
    munmap(regions[k].cells, regions[k].mapped);
    regions.erase(regions.begin() + (std::ptrdiff_t)k);
    break;
  }
  if (start != end) add("shared memory", start, (std::size_t)(end - start), 1, false, true, true);
}

Region *region_of(const char *address) {
  if (last < regions.size() && address >= regions[last].start && address < regions[last].end) return &regions[last];
  for (last = 0; last < regions.size(); ++last)
    if (address >= regions[last].start && address < regions[last].end) return &regions[last];
  return nullptr;
}

std::string place(const Region &region, const char *address) {
  std::size_t bytes = (std::size_t)(address - region.start);
  if (region.shared) return "byte " + std::to_string(bytes) + " of shared memory";
  return region.name + "[" + std::to_string(bytes / region.grain) + "]";
}

// Where in its library an instruction stands, from which its line follows.
std::size_t offset(void *from) {
  Dl_info found;
  return dladdr(from, &found) ? (std::size_t)((char *)from - (char *)found.dli_fbase) - 1 : 0;
}

[[noreturn]] void fault(void *from, const char *what, const std::string &where, const std::string &more = "") {
  Thread t = here();
  complain("@%zx: thread %u %s %s%s", offset(from), t.number, what, where.c_str(), more.c_str());
  fail();
}

[[noreturn]] void wild(const char *address, std::size_t bytes, Kind kind, void *from) {
  const Region *near = nullptr;
  long distance = 0;
  for (const Region &r : regions) {
    long d = address >= r.end ? address - r.end : r.start - address;
    if (!near || d < distance) near = &r, distance = d;
  }
  std::string where = "outside of all arguments and shared memory";
  if (near && distance < (1 << 20))
    where = std::to_string(distance) + " bytes " + (address >= near->end ? "behind the end" : "before the start") + " of " + near->name;
  fault(from, kind == kRead ? "reads" : "writes", std::to_string(bytes) + " bytes " + where);
}

// Whether an earlier access of this block comes before what the thread does now.
bool ordered(const Access &before, const Thread &t) {
  if (before.clock.interval != t.clock.interval || before.thread == t.number) return true;
  return before.of_warp(t.number / 32) && before.clock.warp != t.clock.warp;
}

void note_read(Cell &cell, const Thread &t) {
  Access &r = cell.read;
  // Blocks: one reader is remembered, or that there were many. Threads of a block likewise, as long as no barrier is between them.
  uint32_t block = r.clock.launch == t.clock.launch && r.clock.block != t.clock.block ? kMany : t.clock.block;
  bool same_interval = r.clock.interval == t.clock.interval;
  bool same_warp = r.of_warp(t.number / 32);
  bool alone = !same_interval || r.thread == t.number || (same_warp && r.clock.warp != t.clock.warp);
  uint32_t thread = alone ? t.number : same_warp ? kOfWarp | t.number / 32 : kMany;
  r = {t.clock, thread};
  r.clock.block = block;
}

void check(Region &region, Cell &cell, const char *at, Kind kind, const Thread &t, void *from) {
  const bool writes = kind != kRead && kind != kProxy, atomic = kind == kAtomic;
  if (writes && !region.writable) fault(from, "writes to an input,", place(region, at));
  if (cell.pending && kind != kFinish) {
    std::string whose = " before thread " + std::to_string(cell.pending - 1) + " has waited for its copy";
    fault(from, writes ? "writes" : "reads", place(region, at), whose);
  }
  if (writes && cell.held) fault(from, "writes", place(region, at), ", which a product under way reads");
  uint32_t filled = region.shared ? t.clock.block : 1;
  if ((!writes || atomic) && cell.filled != filled && !refused) fault(from, "reads", place(region, at), ", which nothing has been written to");
  auto race = [&](const Access &other, const char *did) {
    std::string who = other.thread & kOfWarp ? "other threads" : "thread " + std::to_string(other.thread);
    if (other.clock.block != t.clock.block) who += " of another block";
    fault(from, writes ? "writes" : "reads", place(region, at), " without a barrier after " + who + did + " it");
  };
  // Every block has shared memory of its own; of arguments, launches come one after the other.
  auto meets = [&](const Access &other) {
    if (other.clock.block != t.clock.block) return !region.shared && other.clock.launch == t.clock.launch;
    return !ordered(other, t);
  };
  if (meets(cell.wrote) && !(atomic && cell.atomic)) race(cell.wrote, " wrote");
  if (writes && meets(cell.read)) race(cell.read, " read");
  if (kind == kProxy && handed(cell.wrote.thread) == cell.handed)
    fault(from, "reads", place(region, at), " by a product before thread " + std::to_string(cell.wrote.thread) + " has handed it over");
  if (writes) {
    cell.handed = t.handed;
    cell.wrote = {t.clock, t.number};
    cell.filled = filled;
    cell.atomic = atomic;
    cell.pending = kind == kBegin ? t.number + 1 : 0;
  } else {
    note_read(cell, t);
    if (kind == kProxy) cell.read.thread = kMany;
  }
}

}  // namespace

void touch(const void *address, std::size_t bytes, Kind kind, void *from) {
  const char *at = (const char *)address;
  Region *region = region_of(at);
  if (!region) {
    // The variables of the thread, and the run-time's own.
    Thread t = here();
    if ((at >= t.stack && at < t.stack_end) || ours(at)) return;
    wild(at, bytes, kind, from);
  }
  if (at + bytes > region->end) wild(region->end, bytes, kind, from);
  Thread t = here();
  std::size_t first = (std::size_t)(at - region->start) / region->grain;
  std::size_t beyond = ((std::size_t)(at - region->start) + bytes + region->grain - 1) / region->grain;
  for (std::size_t k = first; k < beyond; ++k) check(*region, region->cells[k], region->start + k * region->grain, kind, t, from);
}

void hold(const void *address, std::size_t bytes, bool held) {
  Region *region = region_of((const char *)address);
  for (std::size_t k = 0; region && k < bytes; ++k) region->cells[(const char *)address - region->start + k].held += held ? 1 : -1;
}

void check_block(const te_grid &grid) {
  check_shared(grid.shared, grid.shared_end);
  check_shared(te_host_arena, te_host_arena + grid.asked);
}

}  // namespace te

// The arguments of the launches that follow: bytes from `start`, in elements of `grain` bytes; `filled` says that they hold values.
TE_EXPORT void te_check_memory(const char *name, char *start, std::size_t bytes, std::size_t grain, int filled, int writable) {
  te::add(name, start, bytes, grain, filled, writable, false);
}
TE_EXPORT void te_check_forget() {
  for (te::Region &r : te::regions) munmap(r.cells, r.mapped);
  te::regions.clear();
  te::refused = false;
}
TE_EXPORT void te_host_refused() { te::refused = true; }

// ------------------------------------------------------------------------------- what instrumented kernels call
#define TE_FROM __builtin_return_address(0)
#define TE_HOOK(kind, bytes, unaligned)                                                                                \
  if (te::checking) {                                                                                                  \
    if (!(unaligned) && (uintptr_t)address % (bytes)) {                                                                \
      te::complain("@%zx: an access of %d bytes at an address that is no multiple of them", te::offset(TE_FROM), (int)(bytes)); \
      te::fail();                                                                                                      \
    }                                                                                                                  \
    te::touch(address, bytes, kind, TE_FROM);                                                                          \
  }
#define TE_HOOKS(bytes)                                                                                                \
  TE_EXPORT void __tsan_read##bytes(void *address) { TE_HOOK(te::kRead, bytes, false) }                                \
  TE_EXPORT void __tsan_write##bytes(void *address) { TE_HOOK(te::kWrite, bytes, false) }                              \
  TE_EXPORT void __tsan_unaligned_read##bytes(void *address) { TE_HOOK(te::kRead, bytes, true) }                       \
  TE_EXPORT void __tsan_unaligned_write##bytes(void *address) { TE_HOOK(te::kWrite, bytes, true) }
TE_HOOKS(1)
TE_HOOKS(2)
TE_HOOKS(4)
TE_HOOKS(8)
TE_HOOKS(16)
TE_EXPORT void __tsan_read_range(void *address, std::size_t bytes) { TE_HOOK(te::kRead, bytes, true) }
TE_EXPORT void __tsan_write_range(void *address, std::size_t bytes) { TE_HOOK(te::kWrite, bytes, true) }
TE_EXPORT void __tsan_init() {}
TE_EXPORT void __tsan_func_entry(void *) {}
TE_EXPORT void __tsan_func_exit(void *) {}

namespace {
struct Location {
  const char *file;
  uint32_t line, column;
};
[[noreturn]] void undefined(const void *where, const char *what) {
  te::complain("line %u: %s", ((const Location *)where)->line, what);
  te::fail();
}
}  // namespace
#define TE_UNDEFINED(name, what, ...) \
  TE_EXPORT void __ubsan_handle_##name(void *where, ##__VA_ARGS__) { undefined(where, what); }
TE_UNDEFINED(out_of_bounds, "an index outside of one axis of an array", uintptr_t)
TE_UNDEFINED(add_overflow, "an integer sum that overflows", uintptr_t, uintptr_t)
TE_UNDEFINED(sub_overflow, "an integer difference that overflows", uintptr_t, uintptr_t)
TE_UNDEFINED(mul_overflow, "an integer product that overflows", uintptr_t, uintptr_t)
TE_UNDEFINED(negate_overflow, "an integer negation that overflows", uintptr_t)
TE_UNDEFINED(divrem_overflow, "a division by zero, or one that overflows", uintptr_t, uintptr_t)
TE_UNDEFINED(shift_out_of_bounds, "a shift by more bits than there are", uintptr_t, uintptr_t)
