"""What hora.tensorflow needs of TensorFlow: looked for when it is imported, whatever the release is called."""

from __future__ import annotations

from typing import Any

from .. import _abi, _framework

__all__ = ["FUNCTIONS", "lacks"]

# In the module.
_NAMES = (
    "load_op_library", "function", "GradientTape", "RegisterGradient", "no_gradient", "custom_gradient", "init_scope",
    "IndexedSlices", "io.decode_raw", "__internal__.FuncGraph", "compat.v1.get_default_graph",
    "compat.v1.train.Optimizer",
)  # fmt: skip
# In its library: those of cmd/libhora/tf.h.
_LIBRARY = "libtensorflow_framework.so.2"
FUNCTIONS = (
    "TF_NewStatus", "TF_DeleteStatus", "TF_SetStatus", "TF_GetCode", "TF_Message", "TF_NewOpDefinitionBuilder",
    "TF_OpDefinitionBuilderAddAttr", "TF_OpDefinitionBuilderAddInput", "TF_OpDefinitionBuilderAddOutput",
    "TF_OpDefinitionBuilderSetIsStateful", "TF_OpDefinitionBuilderSetShapeInferenceFunction",
    "TF_RegisterOpDefinition", "TF_NewShapeHandle", "TF_ShapeInferenceContextScalar",
    "TF_ShapeInferenceContextNumInputs", "TF_ShapeInferenceContextGetInput", "TF_ShapeInferenceContextSetOutput",
    "TF_ShapeInferenceContextSetUnknownShape", "TF_DeleteShapeHandle", "TF_NewKernelBuilder",
    "TF_RegisterKernelBuilder", "TF_OpKernelConstruction_GetAttrInt64", "TF_OpKernelConstruction_GetAttrBool",
    "TF_OpKernelConstruction_GetAttrFloat", "TF_OpKernelConstruction_GetAttrSize",
    "TF_OpKernelConstruction_GetAttrString", "TF_OpKernelConstruction_Failure", "TF_NumInputs", "TF_GetInput",
    "TF_ForwardInputOrAllocateOutput", "TF_AllocateOutput", "TF_OpKernelContext_Failure", "TF_TensorType",
    "TF_NumDims", "TF_Dim", "TF_TensorElementCount", "TF_TensorByteSize", "TF_TensorData", "TF_DeleteTensor",
)  # fmt: skip


def lacks(tf: Any) -> str:
    """The first of what operations, derivatives and optimizers are made of that this TensorFlow has not, or ""."""
    return _framework.missing(tf, _NAMES) or _abi.lacks(_LIBRARY, FUNCTIONS)
