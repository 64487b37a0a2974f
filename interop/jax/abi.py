"""XLA's FFI as jaxlib ships it: the layouts of xla/ffi/api/c_api.h (version 0.3) that the handlers use. A test reads them from there."""

from __future__ import annotations

MAJOR, MINOR = 0, 3

LAYOUT = {
    "XLA_FFI_CallFrame.extension_start": 8,
    "XLA_FFI_CallFrame.api": 16,
    "XLA_FFI_CallFrame.ctx": 24,
    "XLA_FFI_CallFrame.args.size": 56,
    "XLA_FFI_CallFrame.args.args": 72,
    "XLA_FFI_CallFrame.rets.size": 96,
    "XLA_FFI_CallFrame.rets.rets": 112,
    "XLA_FFI_CallFrame.attrs.size": 136,
    "XLA_FFI_CallFrame.attrs.attrs": 160,
    "XLA_FFI_Buffer.dtype": 16,
    "XLA_FFI_Buffer.data": 24,
    "XLA_FFI_Buffer.rank": 32,
    "XLA_FFI_Buffer.dims": 40,
    "XLA_FFI_Scalar.value": 8,
    "XLA_FFI_Extension_Base.type": 8,
    "XLA_FFI_Metadata_Extension.metadata": 24,
    "XLA_FFI_Metadata.api_version.major_version": 24,
    "XLA_FFI_Metadata.api_version.minor_version": 28,
    "XLA_FFI_Metadata.traits": 32,
    "XLA_FFI_Metadata.state_type_id": 40,
    "XLA_FFI_Api.XLA_FFI_Error_Create": 48,
    "XLA_FFI_Api.XLA_FFI_Stream_Get": 80,
    "XLA_FFI_Api.XLA_FFI_State_Set": 104,
    "XLA_FFI_Api.XLA_FFI_State_Get": 112,
    "XLA_FFI_Api.XLA_FFI_DeviceMemory_Allocate": 120,
    "XLA_FFI_Api.XLA_FFI_DeviceMemory_Free": 128,
    "XLA_FFI_State_Set_Args.ctx": 16,
    "XLA_FFI_State_Set_Args.stage": 24,
    "XLA_FFI_State_Set_Args.type_id": 32,
    "XLA_FFI_State_Set_Args.state": 40,
    "XLA_FFI_State_Get_Args.ctx": 16,
    "XLA_FFI_State_Get_Args.stage": 24,
    "XLA_FFI_State_Get_Args.type_id": 32,
    "XLA_FFI_State_Get_Args.state": 40,
    "XLA_FFI_Stream_Get_Args.ctx": 16,
    "XLA_FFI_Stream_Get_Args.stream": 24,
    "XLA_FFI_DeviceMemory_Allocate_Args.ctx": 16,
    "XLA_FFI_DeviceMemory_Allocate_Args.size": 24,
    "XLA_FFI_DeviceMemory_Allocate_Args.alignment": 32,
    "XLA_FFI_DeviceMemory_Allocate_Args.data": 40,
    "XLA_FFI_DeviceMemory_Free_Args.ctx": 16,
    "XLA_FFI_DeviceMemory_Free_Args.size": 24,
    "XLA_FFI_DeviceMemory_Free_Args.data": 32,
    "XLA_FFI_Error_Create_Args.message": 16,
    "XLA_FFI_Error_Create_Args.errc": 24,
}
"""Bytes from the start of a struct to a field, as far as the handlers look."""

SIZES = {
    "XLA_FFI_State_Set_Args": 48,
    "XLA_FFI_State_Get_Args": 48,
    "XLA_FFI_Stream_Get_Args": 32,
    "XLA_FFI_DeviceMemory_Allocate_Args": 48,
    "XLA_FFI_DeviceMemory_Free_Args": 40,
    "XLA_FFI_Error_Create_Args": 28,
    "XLA_FFI_TypeInfo": 24,
    "XLA_FFI_TypeId": 8,
}
"""Bytes that a struct says it has (up to the end of its last field)."""

CODES = {"INVALID_ARGUMENT": 3, "NOT_FOUND": 5, "RESOURCE_EXHAUSTED": 8, "OUT_OF_RANGE": 11, "INTERNAL": 13}

DTYPES = {
    "bool": ("PRED", 1),
    "int8": ("S8", 2),
    "int16": ("S16", 3),
    "int32": ("S32", 4),
    "int64": ("S64", 5),
    "uint8": ("U8", 6),
    "uint16": ("U16", 7),
    "uint32": ("U32", 8),
    "uint64": ("U64", 9),
    "float16": ("F16", 10),
    "float32": ("F32", 11),
    "float64": ("F64", 12),
    "bfloat16": ("BF16", 16),
}
"""The language's dtypes: XLA's name and number of each."""


VALUES: dict[str, int | str] = {
    **LAYOUT,
    **{f"sizeof.{name}": size for name, size in SIZES.items()},
    **{f"code.{name}": code for name, code in CODES.items()},
    "MAJOR": MAJOR,
    "MINOR": MINOR,
}
"""The numbers by the names that routines have for them."""
