package house;

import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** A cluster's own rules: at most 24 partitions, and nothing is kept for longer than a week. */
public class HouseRules implements CreateTopicPolicy, AlterConfigPolicy {
    private static final long WEEK_MS = 604_800_000L;

    @Override
    public void validate(CreateTopicPolicy.RequestMetadata asked) {
        check(asked.configs());
        if (asked.numPartitions() != null && asked.numPartitions() > 24) {
            throw new PolicyViolationException("house rule: at most 24 partitions");
        }
    }

    @Override
    public void validate(AlterConfigPolicy.RequestMetadata asked) {
        check(asked.configs());
    }

    private static void check(Map<String, String> configs) {
        String kept = configs.get("retention.ms");
        if (kept != null && Long.parseLong(kept) > WEEK_MS) {
            throw new PolicyViolationException("house rule: nothing is kept for longer than a week");
        }
    }

    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public void close() {
    }
}
