"""A server publishes linear features; a device computes its policy and sends one noisy message."""

import numpy as np

import discreet as dr

learner, privatizer = dr.learners.UCRLVTR(), dr.Local(epsilon=10.0, delta=1e-5)
setup = dr.experiments.Setup(dr.make("linear-mixture"), learner, privatizer, 1000)
session = privatizer.start(setup.query, setup.schedule, dr.Secure())
published = session.device.to_bytes()
plan, state = learner.plan(learner.begin(setup.spec, np.zeros(2, np.uint64)), session.release())
session.begin(plan)
number, solution = session.open_plan.number, learner.solution(state)  # public

device = dr.device.LinearDevice.from_bytes(published)  # the device starts here
own = dr.device.optimistic_action(device.form, solution)  # or plan.policy and plan.context as broadcast
policy = dr.device.greedy_action(own.q, device.form.mask)
states, actions, rewards = np.array([0, 1, 2, 3, 4, 5]), policy[np.arange(5), np.arange(5)], np.zeros(5)
print(device.guarantee)  # computed on the device, from the form alone
message = device(number, own.context, states, actions, rewards)

envelope = dr.device.Envelope.from_bytes(message)  # the server continues here
session.submit(dr.mechanisms.Message(envelope.plan, message=message))
print(len(published), len(message))
