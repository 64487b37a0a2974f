// A driver of CUDA without a GPU, for tests of what talks to the driver: devices, contexts, memory, modules and launches of those of its
// functions that we call. Memory of a device is memory of this process; a cubin is a text that names two libraries, the run-time of
// codegen/cuda/host and kernels compiled for this CPU, which a launch runs at once; or "fake notes", whose launches are only noted. FAKE_CUDA_DEVICES (1) and FAKE_CUDA_CAPABILITY (90)
// say what is there, FAKE_CUDA_LAUNCH what launches give in place of being run. Calls that a real driver would refuse are refused: memory that is none, contexts that are not there.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include <dlfcn.h>

#include "runtime.h"

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

enum { kFine = 0, kInvalidValue = 1, kNoMemory = 2, kNoDevice = 100, kBadDevice = 101, kBadImage = 200, kBadContext = 201, kNotFound = 500 };

struct Context { int device; uint64_t id; bool alive; };
struct Module { Context *context; void *library, *runtime; };
struct Function { Module *module; void *enter; std::string name; unsigned most_asked; };
struct Block { std::size_t bytes; int device; };

std::recursive_mutex lock;
std::vector<Context *> primary;
std::map<uintptr_t, Block> blocks;
uint64_t contexts = 0;
long counts[4];  // launches, modules that are loaded, blocks ever allocated, times that somebody waited
thread_local std::vector<Context *> stack;
std::string notes;  // a line per launch: the kernel, blocks, threads, arguments

int number(const char *name, int usual) {
  const char *text = std::getenv(name);
  return text && *text ? std::atoi(text) : usual;
}
int devices() { return number("FAKE_CUDA_DEVICES", 1); }
Context *current() { return stack.empty() || !stack.back() ? nullptr : stack.back(); }
// The block that an address lies in, with as many bytes behind it.
const Block *block(uintptr_t at, std::size_t bytes) {
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) return nullptr;
  --found;
  return at + bytes <= found->first + found->second.bytes ? &found->second : nullptr;
}

}  // namespace

typedef std::lock_guard<std::recursive_mutex> Locked;

API fake_count(int which) { Locked l(lock); return (int)(which < 4 ? counts[which] : (long)blocks.size()); }
API fake_notes(char *text, std::size_t bytes) {  // gives how many bytes there were, and forgets them
  Locked l(lock);
  const std::size_t count = notes.size();
  if (count < bytes) std::memcpy(text, notes.c_str(), count + 1);
  notes.clear();
  return (int)count;
}
API fake_reset(int device) {  // the primary context goes, and all in it
  Locked l(lock);
  if (device < (int)primary.size() && primary[device]) { primary[device]->alive = false; primary[device] = nullptr; }
  return kFine;
}

API cuInit(unsigned) { return devices() ? kFine : kNoDevice; }
API cuDeviceGetCount(int *count) { *count = devices(); return kFine; }
API cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < devices() ? kFine : kBadDevice; }
API cuDeviceGetName(char *name, int bytes, int) { std::strncpy(name, "a fake", (std::size_t)bytes); return kFine; }
API cuDeviceGetAttribute(int *value, int attribute, int) {
  const int capability = number("FAKE_CUDA_CAPABILITY", 90);
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return attribute == 75 || attribute == 76 ? kFine : kInvalidValue;
}
API cuDevicePrimaryCtxRetain(Context **context, int device) {
  Locked l(lock);
  if (device >= devices()) return kBadDevice;
  if ((int)primary.size() <= device) primary.resize(device + 1);
  if (!primary[device]) primary[device] = new Context{device, ++contexts, true};
  *context = primary[device];
  return kFine;
}
API cuCtxGetCurrent(Context **context) { *context = current(); return kFine; }
API cuCtxSetCurrent(Context *context) {
  if (stack.empty()) stack.push_back(context);
  else stack.back() = context;
  return kFine;
}
API cuCtxPushCurrent_v2(Context *context) {
  if (!context || !context->alive) return kBadContext;
  stack.push_back(context);
  return kFine;
}
API cuCtxPopCurrent_v2(Context **context) {
  if (stack.empty()) return kBadContext;
  *context = stack.back();
  stack.pop_back();
  return kFine;
}
API cuCtxGetDevice(int *device) {
  if (!current()) return kBadContext;
  *device = current()->device;
  return kFine;
}
API cuCtxGetId(Context *context, uint64_t *id) { *id = context->id; return context->alive ? kFine : kBadContext; }

API cuMemAlloc_v2(uintptr_t *at, std::size_t bytes) {
  Locked l(lock);
  if (!current()) return kBadContext;
  if (!bytes || bytes > (std::size_t)1 << 40) return bytes ? kNoMemory : kInvalidValue;
  *at = (uintptr_t)std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset((void *)*at, 0xff, bytes);
  blocks[*at] = {bytes, current()->device};
  ++counts[2];
  return kFine;
}
API cuMemFree_v2(uintptr_t at) {
  Locked l(lock);
  if (!blocks.erase(at)) return kInvalidValue;
  std::free((void *)at);
  return kFine;
}
API cuMemAllocAsync(uintptr_t *at, std::size_t bytes, void *) { return cuMemAlloc_v2(at, bytes); }
API cuMemFreeAsync(uintptr_t at, void *) { return cuMemFree_v2(at); }
API cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, std::size_t bytes, void *) {
  Locked l(lock);
  if (!block(to, bytes)) return kInvalidValue;
  std::memcpy((void *)to, from, bytes);
  return kFine;
}
API cuMemcpyHtoD_v2(uintptr_t to, const void *from, std::size_t bytes) { return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr); }
API cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, std::size_t bytes, void *) {
  Locked l(lock);
  if (!block(from, bytes)) return kInvalidValue;
  std::memcpy(to, (const void *)from, bytes);
  return kFine;
}
API cuMemcpyDtoH_v2(void *to, uintptr_t from, std::size_t bytes) { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); }
API cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, std::size_t bytes, void *) {
  Locked l(lock);
  if (!block(to, bytes) || !block(from, bytes)) return kInvalidValue;
  std::memmove((void *)to, (const void *)from, bytes);
  return kFine;
}
API cuMemsetD8Async(uintptr_t at, unsigned char value, std::size_t bytes, void *) {
  Locked l(lock);
  if (!block(at, bytes)) return kInvalidValue;
  std::memset((void *)at, value, bytes);
  return kFine;
}
API cuPointerGetAttribute(void *data, int attribute, uintptr_t at) {
  Locked l(lock);
  const Block *found = block(at, 0);
  if (!found) return kInvalidValue;
  if (attribute == 2) *(unsigned *)data = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: a device's
  else if (attribute == 9) *(int *)data = found->device;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  else return kInvalidValue;
  return kFine;
}
API cuStreamGetCtx(void *stream, Context **context) {  // a stream is its context here, none that of whoever asks
  *context = stream ? (Context *)stream : current();
  return *context && (*context)->alive ? kFine : kBadContext;
}
API cuCtxSynchronize() { Locked l(lock); ++counts[3]; return current() ? kFine : kBadContext; }
API cuStreamSynchronize(void *) { Locked l(lock); ++counts[3]; return kFine; }
API cuEventCreate(void **event, unsigned) { *event = (void *)&counts; return kFine; }
API cuEventRecord(void *, void *) { return kFine; }
API cuStreamWaitEvent(void *, void *, unsigned) { return kFine; }
API cuEventDestroy_v2(void *) { return kFine; }

API cuModuleLoadData(Module **module, const char *image) {
  Locked l(lock);
  const char *magic = "fake cubin\n";
  if (!current()) return kBadContext;
  if (!std::strcmp(image, "fake notes")) {
    *module = new Module{current(), nullptr, nullptr};
    ++counts[1];
    return kFine;
  }
  if (std::strncmp(image, magic, std::strlen(magic))) return kBadImage;
  std::string text = image + std::strlen(magic);
  const std::size_t line = text.find('\n');
  void *runtime = dlopen(text.substr(0, line).c_str(), RTLD_NOW | RTLD_GLOBAL);
  void *library = dlopen(text.substr(line + 1).c_str(), RTLD_NOW);
  if (!runtime || !library) return kBadImage;
  *module = new Module{current(), library, runtime};
  ++counts[1];
  return kFine;
}
API cuModuleUnload(Module *module) { Locked l(lock); --counts[1]; delete module; return kFine; }
API cuModuleGetFunction(Function **function, Module *module, const char *name) {
  void *enter = module->library ? dlsym(module->library, (std::string("te_enter_") + name).c_str()) : nullptr;
  if (!enter && module->library) return kNotFound;
  *function = new Function{module, enter, name, 48u << 10};
  return kFine;
}
API cuFuncSetAttribute(Function *function, int attribute, int value) {  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  const int capability = number("FAKE_CUDA_CAPABILITY", 90);
  if (attribute != 8 || value < 0 || value > (capability >= 90 ? 227 : capability == 80 ? 163 : capability >= 86 ? 99 : 64) << 10)
    return kInvalidValue;
  function->most_asked = (unsigned)value;
  return kFine;
}
API cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned shared, void *,
                   void **parameters, void **extra) {
  Locked l(lock);
  if (!current() || current() != function->module->context) return kBadContext;
  if (number("FAKE_CUDA_LAUNCH", 0)) return number("FAKE_CUDA_LAUNCH", 0);
  if (!x || !y || !z || !a || !b || !c || y > 65535 || z > 65535 || shared > function->most_asked || parameters || !extra) return kInvalidValue;
  if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return kInvalidValue;
  const std::size_t count = *(std::size_t *)extra[3] / 8;
  if (!function->enter) {
    notes += function->name;
    for (unsigned n : {x, y, z, a, b, c}) notes += " " + std::to_string(n);
    if (shared) notes += " +" + std::to_string(shared);
    for (std::size_t k = 0; k < count; ++k) notes += " " + std::to_string(((int64_t *)extra[1])[k]);
    notes += "\n";
    return kFine;
  }
  std::vector<void *> pointers;
  for (std::size_t k = 0; k < count; ++k) pointers.push_back((uint64_t *)extra[1] + k);
  te_grid grid = {{x, y, z}, {a, b, c}, 0, 0, 1, 0, nullptr, nullptr, shared};
  auto extent = (void (*)(void **, void **))dlsym(function->module->library, "te_shared_extent");
  auto launch = (const char *(*)(void *, void **, te_grid *))dlsym(function->module->runtime, "te_launch");
  extent((void **)&grid.shared, (void **)&grid.shared_end);
  ++counts[0];
  return launch(function->enter, pointers.data(), &grid) ? 719 : kFine;  // CUDA_ERROR_LAUNCH_FAILED
}
API cuGetErrorString(int error, const char **text) {
  *text = error == kBadImage ? "device kernel image is invalid" : error == kNoMemory ? "out of memory" : "an error of the fake";
  return kFine;
}
