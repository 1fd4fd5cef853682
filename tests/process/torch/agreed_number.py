"""A number that is given to a job during its run."""
import math
import os

import torch
import torch.distributed as dist


def agreed_number(path):
    """Returns the number in a file, or None until every member has seen the file. All members call this in the same step."""
    number = -math.inf
    if os.path.exists(path):
        with open(path, encoding="ascii") as file:
            number = float(file.read())
    number = torch.tensor([number], dtype=torch.float64)
    if torch.cuda.is_available():
        number = number.cuda()
    dist.all_reduce(number, dist.ReduceOp.MIN)
    return None if math.isinf(number[0]) else int(number[0])
