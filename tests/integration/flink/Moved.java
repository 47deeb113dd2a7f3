import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.dynamic.source.DynamicKafkaSource;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Copies one topic to another exactly once, and counts the records of each key in its state. With {@code --streams} its
 * source is a dynamic one, and that folder's file {@code --from} holds the name of the topic.
 */
public final class Moved {
    private Moved() {}

    public static void main(String[] words) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < words.length; i += 2) {
            args.put(words[i].substring(2), words[i + 1]);
        }
        String servers = Objects.requireNonNull(args.get("bootstrap"));
        Properties client = new Properties();
        if (args.containsKey("client")) {
            try (Reader file = Files.newBufferedReader(Path.of(args.get("client")))) {
                client.load(file);
            }
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.enableCheckpointing(Long.parseLong(args.getOrDefault("interval", "500")));
        OffsetsInitializer begin =
                args.getOrDefault("start", "committed").equals("latest")
                        ? OffsetsInitializer.latest()
                        : OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST);
        Source<Tuple2<String, String>, ?, ?> source =
                args.containsKey("streams")
                        ? DynamicKafkaSource.<Tuple2<String, String>>builder()
                                .setProperties(client)
                                .setKafkaMetadataService(new Streams(args.get("streams"), client, servers))
                                .setStreamIds(Set.of(args.get("from")))
                                .setGroupId(args.get("group"))
                                .setStartingOffsets(begin)
                                .setProperty("isolation.level", "read_committed")
                                .setProperty("stream-metadata-discovery-interval-ms", "200")
                                .setDeserializer(new Read())
                                .build()
                        : KafkaSource.<Tuple2<String, String>>builder()
                                .setProperties(client)
                                .setBootstrapServers(servers)
                                .setTopics(args.get("from"))
                                .setGroupId(args.get("group"))
                                .setStartingOffsets(begin)
                                .setProperty("isolation.level", "read_committed")
                                .setDeserializer(new Read())
                                .build();
        KafkaSink<Tuple2<String, String>> sink =
                KafkaSink.<Tuple2<String, String>>builder()
                        .setKafkaProducerConfig(client)
                        .setBootstrapServers(servers)
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(args.get("prefix"))
                        .setProperty("transaction.timeout.ms", args.getOrDefault("timeout", "60000"))
                        .setRecordSerializer(new Write(args.get("to")))
                        .build();
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "in")
                .uid(args.get("uid"))
                .keyBy(pair -> pair.f0, Types.STRING)
                .map(new Count(args.getOrDefault("fail", "")))
                .uid("count")
                .sinkTo(sink)
                .uid("out");
        env.execute(args.get("name"));
    }

    /** The key and the value of a record, as text. */
    private static final class Read implements KafkaRecordDeserializationSchema<Tuple2<String, String>> {
        private static final long serialVersionUID = 1;

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<String, String>> out) {
            out.collect(Tuple2.of(text(record.key()), text(record.value())));
        }

        private static String text(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }

        @Override
        public TypeInformation<Tuple2<String, String>> getProducedType() {
            return Types.TUPLE(Types.STRING, Types.STRING);
        }
    }

    /** Puts behind each value the number of records of its key so far; fails at its end where a file is there. */
    private static final class Count extends RichMapFunction<Tuple2<String, String>, Tuple2<String, String>> {
        private static final long serialVersionUID = 1;
        private final String fail;
        private transient ValueState<Long> seen;

        Count(String fail) {
            this.fail = fail;
        }

        @Override
        public void open(OpenContext context) {
            seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Types.LONG));
        }

        @Override
        public Tuple2<String, String> map(Tuple2<String, String> pair) throws Exception {
            Long before = seen.value();
            long count = before == null ? 1 : before + 1;
            seen.update(count);
            return Tuple2.of(pair.f0, pair.f1 + " " + count);
        }

        @Override
        public void close() {
            if (!fail.isEmpty() && Files.exists(Path.of(fail))) {
                throw new IllegalStateException("asked to fail");
            }
        }
    }

    /** A record of the topic it is told. */
    private static final class Write implements KafkaRecordSerializationSchema<Tuple2<String, String>> {
        private static final long serialVersionUID = 1;
        private final String topic;

        Write(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                Tuple2<String, String> pair, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(topic, bytes(pair.f0), bytes(pair.f1));
        }

        private static byte[] bytes(String text) {
            return text.getBytes(StandardCharsets.UTF_8);
        }
    }
}
