"""The report on a learner's own model and traffic: one page to keep."""

from lessonlib.face.report.report import TrafficReport, hourly_price, traffic_report
